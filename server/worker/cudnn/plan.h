// An ExecutionPlan is a plan of cuDNN's graph API.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/model/tuning/candidate.h"
#include "server/worker/cudnn/descriptor.h"
#include "server/worker/cudnn/graph_builder.h"

namespace convtune::worker::cudnn {

// Makes the engine `index` of a graph, finalised. Errors are cuDNN's: UNIMPLEMENTED and
// others where it refuses the engine for this graph and device.
absl::StatusOr<Descriptor> MakeEngine(const OperationGraph& graph, int64_t index);

// A plan that cuDNN has built. Move-only; not thread-safe.
class ExecutionPlan {
 public:
  // Builds the plan from the engine's index and its knobs alone. Knobs that the
  // config does not name have cuDNN's defaults. Building may take seconds where a
  // kernel is compiled. Errors are cuDNN's.
  static absl::StatusOr<ExecutionPlan> Create(const OperationGraph& graph,
                                              const EngineConfig& config);

  const Descriptor& descriptor() const { return plan_; }
  // What an execution needs, in bytes.
  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  ExecutionPlan() = default;

  Descriptor plan_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace convtune::worker::cudnn
