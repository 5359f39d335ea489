// cuDNN's heuristics.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/graph_builder.h"
#include "server/worker/graph_listing.h"

namespace convtune {

// What an engine says of itself, as masks of NoteBit.
struct EngineNotes {
  uint32_t numerical = 0;
  uint32_t behavior = 0;
};
absl::StatusOr<EngineNotes> ReadNotes(const Descriptor& engine);

// Passes what one heuristic mode lists to the sink, in its order. Errors are
// cuDNN's, when the mode refuses the graph.
absl::Status ListHeuristics(const OperationGraph& graph, cudnnBackendHeurMode_t mode,
                            ListingSink* sink);

}  // namespace convtune
