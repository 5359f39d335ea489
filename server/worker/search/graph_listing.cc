#include "server/worker/search/graph_listing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/worker/search/exhaustive.h"
#include "server/worker/search/heuristics.h"

namespace convtune::worker::search {
namespace {

struct HeuristicMode {
  cudnnBackendHeurMode_t mode;
  int16_t HeuristicPlaces::*place;
};

}  // namespace

void ListGraphCandidates(const cudnn::OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink) {
  std::vector<HeuristicMode> modes = {{CUDNN_HEUR_MODE_A, &HeuristicPlaces::mode_a}};
  if (options.depth != worker::v1::LISTING_FIRST_CONFIGS) {
    modes.push_back({CUDNN_HEUR_MODE_B, &HeuristicPlaces::mode_b});
  }
  modes.push_back({CUDNN_HEUR_MODE_FALLBACK, &HeuristicPlaces::fallback});
  // All modes are asked before anything is passed on: a candidate is passed on
  // once, with its place in each.
  std::vector<Candidate> listed;
  std::map<CandidateId, HeuristicPlaces> places;
  bool out_of_time = false;
  for (const auto& [mode, place] : modes) {
    if (!listed.empty() && absl::Now() >= options.deadline) {
      out_of_time = true;
      break;
    }
    absl::StatusOr<HeuristicList> list = AskHeuristics(graph, mode, options.deadline);
    if (!list.ok()) {
      sink->AddRefusal(list.status());
      continue;
    }
    for (const absl::Status& refusal : list->refusals) {
      sink->AddRefusal(refusal);
    }
    out_of_time = out_of_time || list->out_of_time;
    int number = 0;
    for (Candidate& candidate : list->candidates) {
      number = std::min(number + 1, HeuristicPlaces::kMost);
      int16_t& known = places[candidate.id].*place;
      if (known == 0) {
        known = static_cast<int16_t>(number);
      }
      listed.push_back(std::move(candidate));
    }
  }
  for (Candidate& candidate : listed) {
    candidate.places = places[candidate.id];
    if (!sink->OfferRanked(std::move(candidate))) {
      break;
    }
  }
  if (out_of_time) {
    sink->MarkOutOfTime();
  } else if (listed.empty() && sink->end().message().empty()) {
    // Else the legacy API's obstacle would be the only reason.
    sink->AddRefusal(
        absl::NotFoundError("the graph API's heuristics list no engine for this problem"));
  }
  if (options.depth == worker::v1::LISTING_EXHAUSTIVE && !sink->Over()) {
    const absl::Status status = ListEngines(graph, sink);
    if (!status.ok()) {
      sink->AddRefusal(status);
    }
  }
}

}  // namespace convtune::worker::search
