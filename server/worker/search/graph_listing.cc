#include "server/worker/search/graph_listing.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/worker/search/exhaustive.h"
#include "server/worker/search/heuristics.h"

namespace convtune::worker::search {
namespace {

// Passes a list on, as far as the sink takes it.
void OfferAll(absl::StatusOr<HeuristicList> list, ListingSink* sink) {
  if (!list.ok()) {
    sink->AddRefusal(list.status());
    return;
  }
  for (const absl::Status& refusal : list->refusals) {
    sink->AddRefusal(refusal);
  }
  for (Candidate& candidate : list->candidates) {
    if (!sink->OfferRanked(std::move(candidate))) {
      return;
    }
  }
}

}  // namespace

void ListGraphCandidates(const cudnn::OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink) {
  std::vector<cudnnBackendHeurMode_t> modes = {CUDNN_HEUR_MODE_A};
  if (options.depth != ListingDepth::kStock) {
    modes.push_back(CUDNN_HEUR_MODE_B);
  }
  modes.push_back(CUDNN_HEUR_MODE_FALLBACK);
  bool any = false;
  bool out_of_time = false;
  for (const cudnnBackendHeurMode_t mode : modes) {
    if (sink->Over()) {
      return;
    }
    if (any && absl::Now() >= options.deadline) {
      out_of_time = true;
      break;
    }
    absl::StatusOr<HeuristicList> list = AskHeuristics(graph, mode, options.deadline);
    if (list.ok()) {
      any = any || !list->candidates.empty();
      out_of_time = out_of_time || list->out_of_time;
    }
    OfferAll(std::move(list), sink);
  }
  if (out_of_time) {
    sink->MarkOutOfTime();
  }
  if (options.depth == ListingDepth::kExhaustive && !sink->Over()) {
    const absl::Status status = ListEngines(graph, sink);
    if (!status.ok()) {
      sink->AddRefusal(status);
    }
  }
}

}  // namespace convtune::worker::search
