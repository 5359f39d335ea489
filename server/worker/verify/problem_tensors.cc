#include "server/worker/verify/problem_tensors.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace convtune::worker::verify {

absl::StatusOr<ProblemTensors> ProblemTensors::Create(const ConvProblem& problem,
                                                      const cudnn::OperationGraph& graph,
                                                      ReferenceData* host) {
  ProblemTensors tensors;
  for (const cudnn::GraphTensor& tensor : graph.tensors()) {
    if (tensor.output) {
      ASSIGN_OR_RETURN(tensors.output_,
                       device::GuardedBuffer::Allocate(tensor.elements * SizeOf(tensor.type)));
      tensors.output_elements_ = tensor.elements;
      tensors.data_.push_back(tensors.output_.data());
    } else {
      RETURN_IF_ERROR(tensors.AddInput(problem, tensor, host->Block(tensor.uid)));
    }
    tensors.uids_.push_back(tensor.uid);
    void* const data = tensors.data_.back();
    if (tensor.role == cudnn::TensorRole::kX) tensors.pointers_.x = data;
    if (tensor.role == cudnn::TensorRole::kW) tensors.pointers_.w = data;
    if (tensor.role == cudnn::TensorRole::kY) tensors.pointers_.y = data;
  }
  return tensors;
}

absl::Status ProblemTensors::AddInput(const ConvProblem& problem, const cudnn::GraphTensor& tensor,
                                      const std::string& block) {
  ASSIGN_OR_RETURN(device::DeviceBuffer buffer,
                   device::DeviceBuffer::Allocate(tensor.elements * SizeOf(tensor.type)));
  RETURN_IF_ERROR(device::FillWith(block, &buffer));
  const cudnn::TensorRole fresh =
      problem.operation() == Operation::kFwd ? cudnn::TensorRole::kX : cudnn::TensorRole::kY;
  if (tensor.role == fresh) fresh_inputs_.push_back({buffer.data(), buffer.bytes()});
  data_.push_back(buffer.data());
  inputs_.push_back(std::move(buffer));
  return absl::OkStatus();
}

}  // namespace convtune::worker::verify
