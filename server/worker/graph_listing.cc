#include "server/worker/graph_listing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/worker/exhaustive.h"
#include "server/worker/heuristics.h"

namespace convtune {

bool ListingSink::OfferRanked(Candidate candidate) {
  candidate.heuristic_rank = next_rank_;
  const int before = count();
  const bool go_on = Offer(std::move(candidate));
  if (count() > before) {
    ++next_rank_;
  }
  return go_on;
}

bool ListingSink::Offer(Candidate candidate) {
  if (stopped_) {
    return false;
  }
  if (seen_.count(candidate.id) > 0) {
    return true;
  }
  if (options_.max_candidates > 0 && count() >= options_.max_candidates) {
    end_.truncated = true;
    stopped_ = true;
    return false;
  }
  seen_.insert(candidate.id);
  if (!on_listed_(candidate)) {
    stopped_ = true;
  }
  return !stopped_;
}

bool ListingSink::Over() {
  // With nothing listed there is nothing to try: cuDNN, which loads its
  // libraries at its first call, may have taken all of the time for that.
  if (!stopped_ && count() > 0 && absl::Now() >= options_.deadline) {
    end_.out_of_time = true;
    stopped_ = true;
  }
  return stopped_;
}

void ListingSink::AddRefusal(const absl::Status& status) {
  absl::StrAppend(&end_.refusals, end_.refusals.empty() ? "" : "; ", status.message());
}

void ListGraphCandidates(const OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink) {
  std::vector<cudnnBackendHeurMode_t> modes = {CUDNN_HEUR_MODE_A};
  if (options.depth != ListingDepth::kStock) {
    modes.push_back(CUDNN_HEUR_MODE_B);
  }
  modes.push_back(CUDNN_HEUR_MODE_FALLBACK);
  for (const cudnnBackendHeurMode_t mode : modes) {
    if (sink->Over()) {
      return;
    }
    const absl::Status status = ListHeuristics(graph, mode, sink);
    if (!status.ok()) {
      sink->AddRefusal(status);
    }
  }
  if (options.depth == ListingDepth::kExhaustive && !sink->Over()) {
    const absl::Status status = ListEngines(graph, sink);
    if (!status.ok()) {
      sink->AddRefusal(status);
    }
  }
}

}  // namespace convtune
