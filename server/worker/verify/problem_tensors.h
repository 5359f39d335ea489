// ProblemTensors owns the tensors of a problem on a GPU.
#pragma once

#include <cstdint>
#include <string>
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
// output lies between red zones. Move-only.
class ProblemTensors {
 public:
  // Uploads. Errors are CUDA's.
  static absl::StatusOr<ProblemTensors> Create(const ConvProblem& problem,
                                               const cudnn::OperationGraph& graph,
                                               ReferenceData* host);

  const device::GuardedBuffer& output() const { return output_; }
  int64_t output_elements() const { return output_elements_; }
  // For the legacy API.
  const cudnn::ConvPointers& pointers() const { return pointers_; }
  // Of graph.tensors(), in their order.
  const std::vector<int64_t>& uids() const { return uids_; }
  const std::vector<void*>& data() const { return data_; }
  // The tensors that the layer before has just written: x, or the gradient of y.
  const std::vector<timing::MemorySpan>& fresh_inputs() const { return fresh_inputs_; }

 private:
  ProblemTensors() = default;

  absl::Status AddInput(const ConvProblem& problem, const cudnn::GraphTensor& tensor,
                        const std::string& block);

  std::vector<device::DeviceBuffer> inputs_;
  device::GuardedBuffer output_;
  int64_t output_elements_ = 0;
  cudnn::ConvPointers pointers_;
  std::vector<int64_t> uids_;
  std::vector<void*> data_;
  std::vector<timing::MemorySpan> fresh_inputs_;
};

}  // namespace convtune::worker::verify
