#include "client/preload/serve/legacy.h"

#include <gtest/gtest.h>

#include "proto/model/tuning/note_rules.h"

namespace convtune::preload::serve {
namespace {

TEST(LegacyNotes, AreTheDaemons) {
  for (int operation = 1; operation <= 3; ++operation) {
    for (int algorithm = 0; algorithm <= 8; ++algorithm) {
      for (int math = 0; math <= 3; ++math) {
        for (const bool deterministic : {false, true}) {
          for (const DataType type :
               {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kF64}) {
            LegacyResult result = {};
            result.algo = algorithm;
            result.mathType = static_cast<cudnnMathType_t>(math);
            result.determinism = deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
            for (const int64_t extent : {1, 3, 5}) {
              EXPECT_EQ(LegacyNotes(operation, static_cast<uint8_t>(type), extent, result),
                        convtune::LegacyNotes(static_cast<Operation>(operation), type, extent,
                                              algorithm, math, deterministic))
                  << operation << " " << algorithm << " " << math << " " << extent;
            }
          }
        }
      }
    }
  }
}

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
}  // namespace convtune::preload::serve
