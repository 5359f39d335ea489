// ProblemTensors owns the tensors of a problem on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/cudnn/legacy_convolution.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/timing/timer.h"
#include "server/worker/verify/reference_data.h"

namespace convtune::worker::verify {

// Inputs are filled with random values, blocks of which are repeated; the
// output lies between red zones. There may be copies of all of them, which cold runs
// take in turn: rotating buffers, as in FlashInfer's bench_gpu_time_with_cudagraph and
// Composable Kernel's RotatingMemWrapper. Copy 0 are the tensors themselves. Move-only.
class ProblemTensors {
 public:
  // Uploads. Errors are CUDA's.
  static absl::StatusOr<ProblemTensors> Create(const ConvProblem& problem,
                                               const cudnn::OperationGraph& graph,
                                               ReferenceData* host);

  const device::GuardedBuffer& output() const { return output_; }
  int64_t output_elements() const { return output_elements_; }
  // The numbers of graph.tensors(), in their order.
  const std::vector<int64_t>& uids() const { return uids_; }

  // Memory of the GPU that a further copy takes at most.
  int64_t copy_bytes() const;
  // Adds copies until there are `count`, as far as the GPU's memory goes. Waits. Errors are
  // CUDA's.
  absl::Status AddCopies(int count);
  void RemoveCopies() { copies_.erase(copies_.begin() + 1, copies_.end()); }
  int copies() const { return static_cast<int>(copies_.size()); }
  // The memory of graph.tensors(), in their order.
  const std::vector<void*>& data(int copy) const { return copies_[static_cast<size_t>(copy)].data; }
  // The same memory for the legacy API.
  cudnn::ConvPointers pointers(int copy) const;
  // The tensors that the layer before has just written: x, or the gradient of y.
  std::vector<timing::MemorySpan> fresh_inputs(int copy) const;

 private:
  struct Copy {
    std::vector<device::DeviceBuffer> buffers;  // but that of copy 0's output
    std::vector<void*> data;
  };

  ProblemTensors() = default;

  static int64_t Bytes(const cudnn::GraphTensor& tensor) {
    return tensor.elements * SizeOf(tensor.type);
  }
  absl::StatusOr<Copy> MakeCopy() const;

  cudnn::TensorRole fresh_ = cudnn::TensorRole::kX;
  std::vector<cudnn::GraphTensor> tensors_;
  std::vector<int64_t> uids_;
  device::GuardedBuffer output_;
  int64_t output_elements_ = 0;
  std::vector<Copy> copies_;  // never empty
};

}  // namespace convtune::worker::verify
