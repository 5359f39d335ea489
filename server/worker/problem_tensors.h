// The tensors of a problem on a card.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/conv_problem.h"
#include "server/worker/device_memory.h"
#include "server/worker/graph_builder.h"
#include "server/worker/host_work.h"
#include "server/worker/legacy_convolution.h"
#include "server/worker/timer.h"

namespace convtune {

// Inputs are filled with random values, blocks of which are repeated; the
// output lies between red zones. Move-only.
class ProblemTensors {
 public:
  // Uploads. Errors are CUDA's.
  static absl::StatusOr<ProblemTensors> Create(const ConvProblem& problem,
                                               const OperationGraph& graph, HostWork* host);

  const GuardedBuffer& output() const { return output_; }
  int64_t output_elements() const { return output_elements_; }
  // For the legacy API.
  const ConvPointers& pointers() const { return pointers_; }
  // Of graph.tensors(), in their order.
  const std::vector<int64_t>& uids() const { return uids_; }
  const std::vector<void*>& data() const { return data_; }
  // What the layer before has just written: x, or the gradient of y.
  const std::vector<MemorySpan>& fresh_inputs() const { return fresh_inputs_; }

 private:
  ProblemTensors() = default;

  absl::Status AddInput(const ConvProblem& problem, const GraphTensor& tensor,
                        const std::string& block);

  std::vector<DeviceBuffer> inputs_;
  GuardedBuffer output_;
  int64_t output_elements_ = 0;
  ConvPointers pointers_;
  std::vector<int64_t> uids_;
  std::vector<void*> data_;
  std::vector<MemorySpan> fresh_inputs_;
};

}  // namespace convtune
