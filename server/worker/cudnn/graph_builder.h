// An OperationGraph is cuDNN's operation graph of a ConvProblem; ExecutionPlan::Create builds a
// plan for it.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "server/worker/cudnn/descriptor.h"

namespace convtune::worker::cudnn {

// A CudnnTarget is the device that a graph is planned for: a GPU by its handle, or a
// device-properties descriptor that stands in for one. Exactly one is set, and outlives
// all that is made with it.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device_properties = nullptr;
};

// The role of a graph's tensor in the convolution. x, w and y name the forward tensors
// for every operation.
enum class TensorRole { kX, kW, kY, kResidual, kBias };

// A tensor that the caller of the graph provides.
struct GraphTensor {
  TensorRole role = TensorRole::kX;
  int64_t uid = 0;
  DataType type = DataType::kF32;
  int64_t elements = 0;  // that memory must hold, gaps of strides included
  bool output = false;
};

// The operation graph of one problem and the tensors that it needs. With an
// epilogue it is conv -> add -> bias -> relu (those that the problem has), with
// virtual tensors of the intermediate type between. Move-only; not thread-safe.
class OperationGraph {
 public:
  // Errors are cuDNN's, when it refuses the graph as such.
  static absl::StatusOr<OperationGraph> Create(const ConvProblem& problem,
                                               const CudnnTarget& target);

  const Descriptor& descriptor() const { return graph_; }
  const std::vector<GraphTensor>& tensors() const { return tensors_; }
  const CudnnTarget& target() const { return target_; }
  // Sets the device's attributes of an engine or a heuristic of this graph: the number of SMs to
  // use, if the problem has one, and the properties of a GPU that is not there. `sm_count` and
  // `properties` are the names of these attributes, of which each kind of descriptor has its own.
  void SetDevice(cudnnBackendAttributeName_t sm_count, cudnnBackendAttributeName_t properties,
                 Descriptor* descriptor) const {
    if (sm_count_target_ > 0) descriptor->Set(sm_count, sm_count_target_);
    if (target_.device_properties != nullptr) {
      descriptor->Set(properties, *target_.device_properties);
    }
  }

 private:
  OperationGraph() = default;

  CudnnTarget target_;
  int sm_count_target_ = 0;        // 0: the whole GPU
  std::vector<Descriptor> parts_;  // tensors and operators that operations refer to
  std::vector<Descriptor> operations_;
  Descriptor graph_;
  std::vector<GraphTensor> tensors_;

  friend class GraphBuilder;
};

// Makes the engine `index` of a graph, finalised. Errors are cuDNN's: UNIMPLEMENTED and
// others where it refuses the engine for this graph and device.
absl::StatusOr<Descriptor> MakeEngine(const OperationGraph& graph, int64_t index);

// A plan that cuDNN has built. Move-only; not thread-safe.
struct ExecutionPlan {
  // Builds the plan from the engine's index and its knobs alone. Knobs that the
  // config does not name have cuDNN's defaults. Building may take seconds where a
  // kernel is compiled. Errors are cuDNN's.
  static absl::StatusOr<ExecutionPlan> Create(const OperationGraph& graph,
                                              const EngineConfig& config);

  Descriptor descriptor;
  int64_t workspace_bytes = 0;  // that an execution needs
};

cudnnDataType_t ToCudnn(DataType type);
cudnnConvolutionMode_t ToCudnn(ConvolutionMode mode);

}  // namespace convtune::worker::cudnn
