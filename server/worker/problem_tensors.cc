#include "server/worker/problem_tensors.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/worker/tensor_data.h"

namespace convtune {
namespace {

constexpr uint64_t kSeed = 20240229;
// An odd number, so that rows of a tensor do not repeat each other.
constexpr int64_t kBlockElements = (int64_t{1} << 20) + 7;

// Activations come from behind a ReLU, and gradients through one; w and the
// bias do not.
TensorContent ContentOf(TensorRole role) {
  switch (role) {
    case TensorRole::kX:
    case TensorRole::kResidual:
      return TensorContent::kRectified;
    case TensorRole::kY:
      return TensorContent::kMasked;
    case TensorRole::kW:
    case TensorRole::kBias:
      break;
  }
  return TensorContent::kNormal;
}

TensorValues ValuesOf(DataType type, const std::string& bytes) {
  TensorValues values;
  const auto size = static_cast<size_t>(SizeOf(type));
  values.block.reserve(bytes.size() / size);
  for (size_t at = 0; at < bytes.size(); at += size) {
    values.block.push_back(DecodeElement(type, bytes.data() + at));
  }
  return values;
}

TensorValues* PlaceOf(TensorRole role, ReferenceInputs* inputs) {
  switch (role) {
    case TensorRole::kX:
      return &inputs->x;
    case TensorRole::kW:
      return &inputs->w;
    case TensorRole::kY:
      return &inputs->y;
    case TensorRole::kResidual:
      return &inputs->residual;
    case TensorRole::kBias:
      break;
  }
  return &inputs->bias;
}

}  // namespace

absl::StatusOr<ProblemTensors> ProblemTensors::Create(const ConvProblem& problem,
                                                      const OperationGraph& graph) {
  ProblemTensors tensors;
  for (const GraphTensor& tensor : graph.tensors()) {
    if (tensor.output) {
      ASSIGN_OR_RETURN(tensors.output_,
                       GuardedBuffer::Allocate(tensor.elements * SizeOf(tensor.type)));
      tensors.output_elements_ = tensor.elements;
      tensors.data_.push_back(tensors.output_.data());
    } else {
      RETURN_IF_ERROR(tensors.AddInput(problem, tensor));
    }
    tensors.uids_.push_back(tensor.uid);
    void* const data = tensors.data_.back();
    if (tensor.role == TensorRole::kX) tensors.pointers_.x = data;
    if (tensor.role == TensorRole::kW) tensors.pointers_.w = data;
    if (tensor.role == TensorRole::kY) tensors.pointers_.y = data;
  }
  return tensors;
}

absl::Status ProblemTensors::AddInput(const ConvProblem& problem, const GraphTensor& tensor) {
  const std::string block =
      RandomTensorBytes(tensor.type, std::min(tensor.elements, kBlockElements),
                        ContentOf(tensor.role), kSeed + static_cast<uint64_t>(tensor.uid));
  ASSIGN_OR_RETURN(DeviceBuffer buffer,
                   DeviceBuffer::Allocate(tensor.elements * SizeOf(tensor.type)));
  RETURN_IF_ERROR(FillWith(block, &buffer));
  *PlaceOf(tensor.role, &reference_inputs_) = ValuesOf(tensor.type, block);
  const TensorRole fresh = problem.operation() == Operation::kFwd ? TensorRole::kX : TensorRole::kY;
  if (tensor.role == fresh) fresh_inputs_.push_back({buffer.data(), buffer.bytes()});
  data_.push_back(buffer.data());
  inputs_.push_back(std::move(buffer));
  return absl::OkStatus();
}

}  // namespace convtune
