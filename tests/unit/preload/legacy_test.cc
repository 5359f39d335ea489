#include "client/preload/legacy.h"

#include <gtest/gtest.h>

namespace convtune::preload {
namespace {

TEST(IsMathAllowed, TheSameOrAStricterOne) {
  const int order[] = {CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH,
                       CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION};
  for (int candidate = 0; candidate < 4; ++candidate) {
    for (int allowed = 0; allowed < 4; ++allowed) {
      EXPECT_EQ(IsMathAllowed(order[candidate], static_cast<cudnnMathType_t>(order[allowed])),
                candidate <= allowed);
    }
  }
  EXPECT_FALSE(IsMathAllowed(9, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION));
  EXPECT_FALSE(IsMathAllowed(CUDNN_FMA_MATH, static_cast<cudnnMathType_t>(9)));
}

}  // namespace
}  // namespace convtune::preload
