// Real tunings, kept to be run again on machines without a GPU: a bundle with
// samples (tests/data/recordings/README.md).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/tuning/tuning.h"

namespace convtune {

// Immutable: thread-safe.
class Recording {
 public:
  // Reads a bundle of one environment. Every error names the path.
  static absl::StatusOr<Recording> Load(const std::string& path);

  const Environment& environment() const { return environment_; }
  // Of the problem with that text; null if there is none.
  const Tuning* Find(const std::string& problem_text) const;
  // Its candidates as cuDNN listed them: by heuristic rank, those without a
  // rank last.
  static std::vector<Candidate> Listed(const Tuning& tuning);
  // The time of a candidate in a round, in microseconds: what was recorded for
  // that round; for a round in which it did not run, and beyond the last one,
  // its samples in turn. 0 if it has none.
  static double TimeInRound(const Candidate& candidate, int round);

 private:
  Environment environment_;
  std::map<std::string, Tuning> tunings_;  // by problem
};

}  // namespace convtune
