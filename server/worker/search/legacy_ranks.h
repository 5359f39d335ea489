// Places of legacy algorithms in the list of cuDNN's heuristic.
#pragma once

#include <map>
#include <vector>

#include "server/worker/cudnn/legacy_convolution.h"

namespace convtune::worker::search {

// The math types whose lists are asked for, in the order in which they count:
// first what programs have without asking for anything else, as PyTorch's and
// ONNX Runtime's descriptors do. That is TENSOR_OP_MATH for f16, and
// DEFAULT_MATH for the rest, which allows TF32 for f32.
std::vector<cudnnMathType_t> MathTypesOfHeuristic(DataType type);

// Collects the lists of cudnnGetConvolution*Algorithm_v7. Not thread-safe.
class LegacyRanks {
 public:
  // Adds one list, fastest expected first, behind those before it. Entries that
  // did not succeed, and algorithms with a place already, get none.
  void Add(const std::vector<cudnn::FoundAlgorithm>& expected);

  // From 0; -1 if it is in no list.
  int Of(const LegacyAlgorithm& algorithm) const;

  // Those with a place, in its order.
  const std::vector<cudnn::FoundAlgorithm>& ranked() const { return ranked_; }

 private:
  std::map<LegacyAlgorithm, int> places_;
  std::vector<cudnn::FoundAlgorithm> ranked_;
};

}  // namespace convtune::worker::search
