// Lists every engine that cuDNN has for a graph, with its knob ranges.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/search/listing_sink.h"

namespace convtune::worker::search {

// Values that a knob takes: minimum, minimum + stride, ... up to maximum.
struct KnobRange {
  int type = 0;
  int64_t minimum = 0;
  int64_t maximum = 0;
  int64_t stride = 1;

  int64_t Count() const;
};

// The combinations of an engine's knobs in an order that spreads over the
// whole space from the start, each once. Value type.
class KnobSpace {
 public:
  explicit KnobSpace(std::vector<KnobRange> ranges);

  // Number of combinations, at least 1; capped at 2^40.
  int64_t size() const { return size_; }
  // REQUIRES: 0 <= i < size().
  std::vector<std::pair<int, int64_t>> At(int64_t i) const;

 private:
  std::vector<KnobRange> ranges_;
  int64_t size_ = 1;
  int64_t step_ = 1;  // coprime to size_
};

// Most combinations of one engine that are listed; an engine with more marks
// the listing truncated.
inline constexpr int64_t kMaxConfigsPerEngine = 1024;

// Passes combinations to the sink, one of each engine in turn, until all are
// listed or the sink has enough. Engines that do not support the graph are
// passed over.
absl::Status ListEngines(const cudnn::OperationGraph& graph, ListingSink* sink);

}  // namespace convtune::worker::search
