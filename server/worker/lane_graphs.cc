#include "server/worker/lane_graphs.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace convtune {

absl::StatusOr<LaneGraphs> LaneGraphs::Create(const ConvProblem& problem, TargetOf target_of) {
  LaneGraphs graphs(problem, std::move(target_of));
  RETURN_IF_ERROR(graphs.Get(0).status());
  return graphs;
}

absl::StatusOr<const OperationGraph*> LaneGraphs::Get(int lane) {
  ASSIGN_OR_RETURN(const CudnnTarget target, target_of_(lane));
  std::optional<OperationGraph>& graph = graphs_[static_cast<size_t>(lane)];
  if (!graph.has_value()) {
    ASSIGN_OR_RETURN(graph, OperationGraph::Create(problem_, target));
  }
  return &*graph;
}

}  // namespace convtune
