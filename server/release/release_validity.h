#pragma once

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/model/release/release.h"
#include "server/lookup/tuning_index.h"

namespace convtune::release {

// ReleaseValidity says whether what a release chose still holds: for the CUDA
// libraries that there are, and beside the bans. A portfolio does not say which libraries it was
// measured with, and may be of a tuning that was replaced since, of a release that was gone back
// to, or of a backup. So a choice that is compiled at run time or uses cuBLASLt holds while the
// problem's own tuning does and says that the candidate ran: a tuning holds for one build of each.
// If the present libraries are not known, all choices hold. Thread-safe.
class ReleaseValidity {
 public:
  // `read` gives a tuning with all its candidates. `index`, which knows the
  // libraries and the bans, outlives it.
  ReleaseValidity(const lookup::TuningIndex* index,
                  std::function<absl::StatusOr<Tuning>(const TuningKey&)> read)
      : index_(index), read_(std::move(read)) {}

  // The portfolio without the choices that do not hold; what is kept for its
  // notes alone stays. Sets `*holds` to whether that is all of it.
  Portfolio HoldingPart(Portfolio portfolio, bool* holds) const;

 private:
  // Takes out what does not hold for the libraries.
  void LeaveOutdated(Portfolio* portfolio) const;
  bool Ran(const lookup::IndexedTuning& known, const CandidateId& candidate) const;

  const lookup::TuningIndex* index_;
  std::function<absl::StatusOr<Tuning>(const TuningKey&)> read_;
};

}  // namespace convtune::release
