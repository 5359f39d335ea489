#include "server/worker/search/graph_listing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::search {
namespace {

// Our notes are cuDNN's numbers plus one; those that are newer than our
// enumerations still have a bit of their own.
constexpr int kMostNotes = 31;

template <typename Note>
uint32_t NotesMask(const std::vector<Note>& notes) {
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

absl::Status ReadNotes(const cudnn::Descriptor& engine, Candidate* candidate) {
  ASSIGN_OR_RETURN(const auto numerical,
                   engine.GetAll<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
  ASSIGN_OR_RETURN(const auto behavior,
                   engine.GetAll<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE));
  candidate->numerical_notes = NotesMask(numerical);
  candidate->behavior_notes = NotesMask(behavior);
  return absl::OkStatus();
}

constexpr int64_t kMaxSpace = int64_t{1} << 40;

// Combinations of one engine that are listed at most.
constexpr int64_t kMaxConfigsPerEngine = 1024;

struct EngineSpace {
  Candidate candidate;  // the engine with its notes, without knobs
  KnobSpace knobs;
};

absl::StatusOr<EngineSpace> ReadEngine(const cudnn::OperationGraph& graph, int64_t index) {
  ASSIGN_OR_RETURN(const cudnn::Descriptor engine, cudnn::MakeEngine(graph, index));
  Candidate candidate;
  candidate.id = EngineConfig{index, {}};
  RETURN_IF_ERROR(ReadNotes(engine, &candidate));
  ASSIGN_OR_RETURN(
      const std::vector<cudnn::Descriptor> infos,
      engine.GetDescriptors(CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR));
  std::vector<KnobRange> ranges;
  for (const cudnn::Descriptor& info : infos) {
    KnobRange range;
    ASSIGN_OR_RETURN(const auto type, info.Get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_INFO_TYPE));
    range.type = static_cast<int>(type);
    ASSIGN_OR_RETURN(range.minimum, info.Get<int64_t>(CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE));
    ASSIGN_OR_RETURN(range.maximum, info.Get<int64_t>(CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE));
    ASSIGN_OR_RETURN(range.stride, info.Get<int64_t>(CUDNN_ATTR_KNOB_INFO_STRIDE));
    ranges.push_back(range);
  }
  return EngineSpace{std::move(candidate), KnobSpace(std::move(ranges))};
}

// Passes combinations to the sink, one of each engine in turn, until all are listed or the sink
// has enough. Engines that do not support the graph are passed over.
absl::Status ListEngines(const cudnn::OperationGraph& graph, ListingSink* sink) {
  ASSIGN_OR_RETURN(const int64_t count,
                   graph.descriptor().Get<int64_t>(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT));
  std::vector<EngineSpace> engines;
  for (int64_t index = 0; index < count; ++index) {
    if (sink->Over()) {
      return absl::OkStatus();
    }
    absl::StatusOr<EngineSpace> engine = ReadEngine(graph, index);
    if (engine.ok()) {
      if (engine->knobs.size() > kMaxConfigsPerEngine) {
        sink->MarkTruncated();
      }
      engines.push_back(*std::move(engine));
    }
  }
  for (int64_t round = 0; round < kMaxConfigsPerEngine; ++round) {
    bool any = false;
    for (const EngineSpace& engine : engines) {
      if (round >= engine.knobs.size()) {
        continue;
      }
      any = true;
      Candidate candidate = engine.candidate;
      std::get<EngineConfig>(candidate.id).knobs = engine.knobs.At(round);
      if (sink->Over() || !sink->Offer(candidate)) {
        return absl::OkStatus();
      }
    }
    if (!any) {
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t KnobRange::Count() const {
  return maximum < minimum ? 1 : (maximum - minimum) / std::max<int64_t>(stride, 1) + 1;
}

KnobSpace::KnobSpace(std::vector<KnobRange> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const KnobRange& a, const KnobRange& b) { return a.type < b.type; });
  for (const KnobRange& range : ranges_) {
    size_ = range.Count() > kMaxSpace / size_ ? kMaxSpace : size_ * range.Count();
  }
  // Multiples of the golden section fall evenly into the space.
  step_ = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(size_) * 0.6180339887), 1);
  while (std::gcd(step_, size_) != 1) {
    ++step_;
  }
}

std::vector<std::pair<int, int64_t>> KnobSpace::At(int64_t i) const {
  // size_ is at most 2^40, so the product needs more than 64 bits.
  int64_t rest = static_cast<int64_t>(static_cast<unsigned __int128>(i) *
                                      static_cast<unsigned __int128>(step_) %
                                      static_cast<unsigned __int128>(size_));
  std::vector<std::pair<int, int64_t>> knobs;
  knobs.reserve(ranges_.size());
  for (const KnobRange& range : ranges_) {
    const int64_t count = range.Count();
    knobs.emplace_back(range.type, range.minimum + rest % count * range.stride);
    rest /= count;
  }
  return knobs;
}

absl::StatusOr<Candidate> ReadCandidate(const cudnn::Descriptor& config) {
  ASSIGN_OR_RETURN(
      const std::vector<cudnn::Descriptor> engines,
      config.GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engines.empty()) return absl::InternalError("an engine config has no engine");
  Candidate candidate;
  ASSIGN_OR_RETURN(candidate.id, ReadConfig(config, engines[0]));
  RETURN_IF_ERROR(ReadNotes(engines[0], &candidate));
  return candidate;
}

absl::StatusOr<HeuristicList> AskHeuristics(const cudnn::OperationGraph& graph,
                                            cudnnBackendHeurMode_t mode, SteadyTime deadline) {
  ASSIGN_OR_RETURN(cudnn::Descriptor heuristics,
                   cudnn::Descriptor::Create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor());
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  graph.SetDevice(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                  &heuristics);
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

void ListGraphCandidates(const cudnn::OperationGraph& graph, worker::v1::Listing depth,
                         ListingSink* sink) {
  std::vector<std::pair<cudnnBackendHeurMode_t, int16_t HeuristicPlaces::*>> modes = {
      {CUDNN_HEUR_MODE_A, &HeuristicPlaces::mode_a}};
  if (depth != worker::v1::LISTING_FIRST_CONFIGS) {
    modes.emplace_back(CUDNN_HEUR_MODE_B, &HeuristicPlaces::mode_b);
  }
  modes.emplace_back(CUDNN_HEUR_MODE_FALLBACK, &HeuristicPlaces::fallback);
  // All modes are asked before anything is passed on: a candidate is passed on
  // once, with its place in each. Its rank is its place among all of them.
  std::vector<Candidate> listed;
  std::map<CandidateId, HeuristicPlaces> places;
  bool out_of_time = false;
  for (const auto& [mode, place] : modes) {
    if (!listed.empty() && SteadyTime::Now() >= sink->deadline()) {
      out_of_time = true;
      break;
    }
    absl::StatusOr<HeuristicList> list = AskHeuristics(graph, mode, sink->deadline());
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
      const auto [known, is_new] = places.try_emplace(candidate.id);
      int16_t& its = known->second.*place;
      if (its == 0) its = static_cast<int16_t>(number);
      if (!is_new) continue;
      candidate.heuristic_rank = static_cast<int>(listed.size());
      listed.push_back(std::move(candidate));
    }
  }
  for (Candidate& candidate : listed) {
    candidate.places = places[candidate.id];
    if (!sink->Offer(candidate)) break;
  }
  if (out_of_time) {
    sink->MarkOutOfTime();
  } else if (listed.empty() && sink->outcome().message().empty()) {
    // Else the legacy API's obstacle would be the only reason.
    sink->AddRefusal(
        absl::NotFoundError("the graph API's heuristics list no engine for this problem"));
  }
  if (depth == worker::v1::LISTING_EXHAUSTIVE && !sink->Over()) {
    const absl::Status status = ListEngines(graph, sink);
    if (!status.ok()) {
      sink->AddRefusal(status);
    }
  }
}

}  // namespace convtune::worker::search
