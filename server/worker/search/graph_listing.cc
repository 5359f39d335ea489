#include "server/worker/search/graph_listing.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "server/worker/search/exhaustive.h"

namespace convtune::worker::search {
namespace {

// Our notes are cuDNN's numbers plus one; those that are newer than our
// enumerations still have a bit of their own.
constexpr int kMostNotes = 31;

template <typename Note>
uint32_t MaskOf(const std::vector<Note>& notes) {
  uint32_t mask = 0;
  for (const Note note : notes) {
    const int number = static_cast<int>(note) + 1;
    if (number > 0 && number <= kMostNotes) {
      mask |= 1U << number;
    }
  }
  return mask;
}

absl::StatusOr<EngineConfig> ReadConfig(const cudnn::Descriptor& config,
                                        const cudnn::Descriptor& engine) {
  EngineConfig result;
  ASSIGN_OR_RETURN(result.engine_index, engine.Get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  // cuDNN gives 0 as the count of knob choices; there is at most one for each
  // knob of the engine.
  ASSIGN_OR_RETURN(const int64_t most,
                   engine.Count(CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR));
  ASSIGN_OR_RETURN(const std::vector<cudnn::Descriptor> choices,
                   config.GetDescriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                         CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, most));
  for (const cudnn::Descriptor& choice : choices) {
    ASSIGN_OR_RETURN(const auto type,
                     choice.Get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE));
    ASSIGN_OR_RETURN(const int64_t value, choice.Get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    result.knobs.emplace_back(static_cast<int>(type), value);
  }
  std::sort(result.knobs.begin(), result.knobs.end());
  return result;
}

}  // namespace

absl::StatusOr<EngineNotes> ReadNotes(const cudnn::Descriptor& engine) {
  ASSIGN_OR_RETURN(const auto numerical,
                   engine.GetAll<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
  ASSIGN_OR_RETURN(const auto behavior,
                   engine.GetAll<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE));
  return EngineNotes{MaskOf(numerical), MaskOf(behavior)};
}

absl::StatusOr<Candidate> ReadCandidate(const cudnn::Descriptor& config) {
  ASSIGN_OR_RETURN(
      const cudnn::Descriptor engine,
      config.GetDescriptor(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  Candidate candidate;
  ASSIGN_OR_RETURN(candidate.id, ReadConfig(config, engine));
  ASSIGN_OR_RETURN(const EngineNotes notes, ReadNotes(engine));
  candidate.numerical_notes = notes.numerical;
  candidate.behavior_notes = notes.behavior;
  return candidate;
}

absl::StatusOr<HeuristicList> AskHeuristics(const cudnn::OperationGraph& graph,
                                            cudnnBackendHeurMode_t mode, SteadyTime deadline) {
  ASSIGN_OR_RETURN(cudnn::Descriptor heuristics,
                   cudnn::Descriptor::Create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor());
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (graph.sm_count_target() > 0) {
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, graph.sm_count_target());
  }
  if (graph.target().device_properties != nullptr) {
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *graph.target().device_properties);
  }
  RETURN_IF_ERROR(heuristics.Finalize());
  ASSIGN_OR_RETURN(
      const std::vector<cudnn::Descriptor> configs,
      heuristics.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  HeuristicList list;
  for (const cudnn::Descriptor& config : configs) {
    if (!list.candidates.empty() && SteadyTime::Now() >= deadline) {
      list.out_of_time = true;
      break;
    }
    absl::StatusOr<Candidate> candidate = ReadCandidate(config);
    if (candidate.ok()) {
      list.candidates.push_back(*std::move(candidate));
    } else {
      list.refusals.push_back(candidate.status());
    }
  }
  return list;
}

void ListGraphCandidates(const cudnn::OperationGraph& graph, const ListingOptions& options,
                         ListingSink* sink) {
  std::vector<std::pair<cudnnBackendHeurMode_t, int16_t HeuristicPlaces::*>> modes = {
      {CUDNN_HEUR_MODE_A, &HeuristicPlaces::mode_a}};
  if (options.depth != worker::v1::LISTING_FIRST_CONFIGS) {
    modes.emplace_back(CUDNN_HEUR_MODE_B, &HeuristicPlaces::mode_b);
  }
  modes.emplace_back(CUDNN_HEUR_MODE_FALLBACK, &HeuristicPlaces::fallback);
  // All modes are asked before anything is passed on: a candidate is passed on
  // once, with its place in each.
  std::vector<Candidate> listed;
  std::map<CandidateId, HeuristicPlaces> places;
  bool out_of_time = false;
  for (const auto& [mode, place] : modes) {
    if (!listed.empty() && SteadyTime::Now() >= options.deadline) {
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
