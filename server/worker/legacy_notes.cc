#include "server/worker/legacy_notes.h"

#include <cudnn.h>

#include <limits>

namespace convtune {
namespace {

bool IsFft(Operation operation, int algorithm) {
  switch (operation) {
    case Operation::kFwd:
      return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT ||
             algorithm == CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING;
    case Operation::kBwdData:
      return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT ||
             algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING;
    case Operation::kBwdFilter:
      return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT ||
             algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING;
  }
  return false;
}

bool IsWinograd(Operation operation, int algorithm) {
  switch (operation) {
    case Operation::kFwd:
      return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD ||
             algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
    case Operation::kBwdData:
      return algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD ||
             algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED;
    case Operation::kBwdFilter:
      return algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD ||
             algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
  }
  return false;
}

uint32_t MathNotes(DataType data_type, int math_type) {
  const bool f32 = data_type == DataType::kF32;
  switch (math_type) {
    case CUDNN_TENSOR_OP_MATH:
      return NoteBit(NumericalNote::kTensorCore);
    case CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION:
      return NoteBit(NumericalNote::kTensorCore) |
             (f32 ? NoteBit(NumericalNote::kDownConvertInputs) : 0U);
    case CUDNN_DEFAULT_MATH:
      return f32 ? NoteBit(NumericalNote::kTensorCore) : 0U;
    default:
      return 0;
  }
}

}  // namespace

uint32_t LegacyNumericalNotes(Operation operation, DataType data_type,
                              const LegacyAlgorithm& algorithm, bool deterministic) {
  uint32_t notes = MathNotes(data_type, algorithm.math_type);
  if (IsFft(operation, algorithm.algorithm)) {
    notes |= NoteBit(NumericalNote::kFft);
  }
  if (IsWinograd(operation, algorithm.algorithm)) {
    notes |= NoteBit(NumericalNote::kWinograd);
  }
  if (!deterministic) {
    notes |= NoteBit(NumericalNote::kNondeterministic);
  }
  return notes;
}

std::string LegacyObstacle(const ConvProblem& problem) {
  if (!problem.epilogue().empty()) {
    return "the legacy API is asked for no epilogue";
  }
  if (!problem.symmetric_padding()) {
    return "the legacy API has no asymmetric padding";
  }
  if (problem.layout() == TensorLayout::kStrided) {
    return "the legacy API's filters are packed NCHW or NHWC";
  }
  if (problem.sm_count_target() != 0) {
    return "the legacy API has no SM-count target";
  }
  for (const std::vector<int64_t>* values :
       {&problem.x_dims(), &problem.w_dims(), &problem.y_dims(), &problem.x_strides(),
        &problem.y_strides(), &problem.pad_low(), &problem.strides(), &problem.dilations()}) {
    for (const int64_t value : *values) {
      if (value > std::numeric_limits<int>::max()) {
        return "the legacy API's sizes and strides are 32-bit";
      }
    }
  }
  return "";
}

}  // namespace convtune
