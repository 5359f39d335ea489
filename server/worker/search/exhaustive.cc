#include "server/worker/search/exhaustive.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/plan.h"
#include "server/worker/search/graph_listing.h"

namespace convtune::worker::search {
namespace {

constexpr int64_t kMaxSpace = int64_t{1} << 40;

struct EngineSpace {
  int64_t index = 0;
  EngineNotes notes;
  KnobSpace knobs;
};

absl::StatusOr<EngineSpace> ReadEngine(const cudnn::OperationGraph& graph, int64_t index) {
  ASSIGN_OR_RETURN(const cudnn::Descriptor engine, cudnn::MakeEngine(graph, index));
  ASSIGN_OR_RETURN(const EngineNotes notes, ReadNotes(engine));
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
  return EngineSpace{index, notes, KnobSpace(std::move(ranges))};
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
      Candidate candidate;
      candidate.id = EngineConfig{engine.index, engine.knobs.At(round)};
      candidate.numerical_notes = engine.notes.numerical;
      candidate.behavior_notes = engine.notes.behavior;
      if (sink->Over() || !sink->Offer(std::move(candidate))) {
        return absl::OkStatus();
      }
    }
    if (!any) {
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace convtune::worker::search
