// One operation graph for each lane.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "server/worker/graph_builder.h"
#include "server/worker/lanes.h"

namespace convtune {

// The graph of one problem, made for each lane when that first asks for it.
// Different lanes may ask at the same time.
class LaneGraphs {
 public:
  // What a lane's graph is planned for; called on the lane's thread, whenever
  // it asks for its graph.
  using TargetOf = std::function<absl::StatusOr<CudnnTarget>(int lane)>;

  // Makes the graph of lane 0. Errors are those of OperationGraph::Create.
  static absl::StatusOr<LaneGraphs> Create(const ConvProblem& problem, TargetOf target_of);

  // Errors are the target's, and those of OperationGraph::Create.
  absl::StatusOr<const OperationGraph*> Get(int lane);
  // Lane 0's.
  const OperationGraph& first() const { return *graphs_[0]; }

 private:
  LaneGraphs(const ConvProblem& problem, TargetOf target_of)
      : problem_(problem), target_of_(std::move(target_of)) {}

  ConvProblem problem_;
  TargetOf target_of_;
  std::array<std::optional<OperationGraph>, kMostLanes> graphs_;
};

}  // namespace convtune
