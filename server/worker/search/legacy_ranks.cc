#include "server/worker/search/legacy_ranks.h"

namespace convtune::worker::search {

std::vector<cudnnMathType_t> MathTypesOfHeuristic(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {CUDNN_TENSOR_OP_MATH};
    case DataType::kF32:
      return {CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION};
    case DataType::kF64:
      return {CUDNN_DEFAULT_MATH};
    default:
      return {CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH};
  }
}

void LegacyRanks::Add(const std::vector<cudnn::FoundAlgorithm>& expected) {
  for (const cudnn::FoundAlgorithm& entry : expected) {
    if (entry.status != CUDNN_STATUS_SUCCESS) continue;
    if (places_.emplace(entry.id, static_cast<int>(ranked_.size())).second) {
      ranked_.push_back(entry);
    }
  }
}

int LegacyRanks::Of(const LegacyAlgorithm& algorithm) const {
  const auto found = places_.find(algorithm);
  return found == places_.end() ? -1 : found->second;
}

}  // namespace convtune::worker::search
