#include "server/worker/graph_listing.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/worker/exhaustive.h"
#include "server/worker/heuristics.h"
#include "server/worker/lanes.h"

namespace convtune {

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

void ListGraphCandidates(LaneGraphs* graphs, const ListingOptions& options, ListingSink* sink) {
  std::vector<cudnnBackendHeurMode_t> modes = {CUDNN_HEUR_MODE_A};
  if (options.depth != ListingDepth::kStock) {
    modes.push_back(CUDNN_HEUR_MODE_B);
  }
  modes.push_back(CUDNN_HEUR_MODE_FALLBACK);
  if (sink->Over()) {
    return;
  }
  std::vector<absl::StatusOr<HeuristicList>> lists(modes.size(), HeuristicList());
  std::atomic<size_t> next = 0;
  std::atomic<bool> any = false;
  RunOnLanes(std::min(options.lanes, static_cast<int>(modes.size())), [&](int lane) {
    for (size_t i = next++; i < modes.size(); i = next++) {
      if (any && absl::Now() >= options.deadline) {
        lists[i]->out_of_time = true;
        continue;
      }
      const absl::StatusOr<const OperationGraph*> graph = graphs->Get(lane);
      lists[i] = graph.ok() ? AskHeuristics(**graph, modes[i], options.deadline)
                            : absl::StatusOr<HeuristicList>(graph.status());
      any = any || (lists[i].ok() && !lists[i]->candidates.empty());
    }
  });
  bool out_of_time = false;
  for (absl::StatusOr<HeuristicList>& list : lists) {
    out_of_time = out_of_time || (list.ok() && list->out_of_time);
    OfferAll(std::move(list), sink);
  }
  if (out_of_time) {
    sink->MarkOutOfTime();
  }
  if (options.depth == ListingDepth::kExhaustive && !sink->Over()) {
    const absl::Status status = ListEngines(graphs->first(), sink);
    if (!status.ok()) {
      sink->AddRefusal(status);
    }
  }
}

}  // namespace convtune
