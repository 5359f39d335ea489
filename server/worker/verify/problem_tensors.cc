#include "server/worker/verify/problem_tensors.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::verify {

absl::StatusOr<ProblemTensors> ProblemTensors::Create(const ConvProblem& problem,
                                                      const cudnn::OperationGraph& graph,
                                                      ReferenceData* host) {
  ProblemTensors tensors;
  tensors.tensors_ = graph.tensors();
  tensors.fresh_ =
      problem.operation() == Operation::kFwd ? cudnn::TensorRole::kX : cudnn::TensorRole::kY;
  Copy first;
  for (const cudnn::GraphTensor& tensor : tensors.tensors_) {
    tensors.uids_.push_back(tensor.uid);
    if (tensor.output) {
      ASSIGN_OR_RETURN(tensors.output_, device::GuardedBuffer::Allocate(Bytes(tensor)));
      tensors.output_elements_ = tensor.elements;
      first.data.push_back(tensors.output_.data());
      continue;
    }
    ASSIGN_OR_RETURN(device::DeviceBuffer buffer, device::DeviceBuffer::Allocate(Bytes(tensor)));
    RETURN_IF_ERROR(device::FillWith(host->Block(tensor.uid), &buffer));
    first.data.push_back(buffer.data());
    first.buffers.push_back(std::move(buffer));
  }
  tensors.copies_.push_back(std::move(first));
  return tensors;
}

absl::StatusOr<ProblemTensors::Copy> ProblemTensors::MakeCopy() const {
  Copy copy;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t bytes = Bytes(tensors_[i]);
    ASSIGN_OR_RETURN(device::DeviceBuffer buffer, device::DeviceBuffer::Allocate(bytes));
    if (!tensors_[i].output) {
      RETURN_IF_ERROR(
          cudnn::ToStatus(cudaMemcpy(buffer.data(), data(0)[i], static_cast<size_t>(bytes),
                                     cudaMemcpyDeviceToDevice),
                          "copy a tensor"));
    }
    copy.data.push_back(buffer.data());
    copy.buffers.push_back(std::move(buffer));
  }
  return copy;
}

int64_t ProblemTensors::copy_bytes() const {
  int64_t bytes = 0;
  for (const cudnn::GraphTensor& tensor : tensors_) bytes += device::WholePages(Bytes(tensor));
  return bytes;
}

absl::Status ProblemTensors::AddCopies(int count) {
  while (copies() < count) {
    absl::StatusOr<Copy> copy = MakeCopy();
    if (absl::IsResourceExhausted(copy.status())) break;
    RETURN_IF_ERROR(copy.status());
    copies_.push_back(*std::move(copy));
  }
  return cudnn::ToStatus(cudaDeviceSynchronize(), "copy tensors");
}

cudnn::ConvPointers ProblemTensors::pointers(int copy) const {
  cudnn::ConvPointers pointers;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].role == cudnn::TensorRole::kX) pointers.x = data(copy)[i];
    if (tensors_[i].role == cudnn::TensorRole::kW) pointers.w = data(copy)[i];
    if (tensors_[i].role == cudnn::TensorRole::kY) pointers.y = data(copy)[i];
  }
  return pointers;
}

std::vector<timing::MemorySpan> ProblemTensors::fresh_inputs(int copy) const {
  std::vector<timing::MemorySpan> spans;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].role == fresh_ && !tensors_[i].output) {
      spans.push_back({data(copy)[i], Bytes(tensors_[i])});
    }
  }
  return spans;
}

}  // namespace convtune::worker::verify
