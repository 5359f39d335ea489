// A ListingSink takes the candidates from the parts of a listing, and passes them on.
#pragma once

#include <set>

#include "absl/status/status.h"
#include "server/worker/backend.h"

namespace convtune::worker::search {

// Passes on each listed candidate once, until the limit or the deadline. Not thread-safe.
class ListingSink {
 public:
  // `max_candidates` of 0: no limit. `on_listed` outlives the sink.
  ListingSink(int max_candidates, SteadyTime deadline, const BackendProblem::OnListed& on_listed)
      : max_candidates_(max_candidates), deadline_(deadline), on_listed_(on_listed) {}

  // Returns false when the listing is over.
  bool Offer(const Candidate& candidate);

  // True if the deadline has passed and something is listed, or is `about_to_be`.
  bool Late(int about_to_be = 0) const;
  // True once a limit was met, or it is late, which ends the listing; to be
  // asked between calls of cuDNN.
  bool Over();
  // The deadline kept something from being listed.
  void MarkOutOfTime() {
    outcome_.set_out_of_time(true);
    stopped_ = true;
  }
  // Something that could be listed was left out.
  void MarkTruncated() { outcome_.set_truncated(true); }
  // cudnnFind* was not called.
  void MarkFindLeftOut() { outcome_.set_find_left_out(true); }
  // Part of the listing was refused.
  void AddRefusal(const absl::Status& status);

  SteadyTime deadline() const { return deadline_; }
  int count() const { return static_cast<int>(seen_.size()); }
  const worker::v1::Outcome& outcome() const { return outcome_; }

 private:
  const int max_candidates_;
  const SteadyTime deadline_;
  const BackendProblem::OnListed& on_listed_;
  std::set<CandidateId> seen_;
  bool stopped_ = false;
  worker::v1::Outcome outcome_;
};

}  // namespace convtune::worker::search
