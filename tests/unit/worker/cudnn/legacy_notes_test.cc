#include "proto/model/tuning/note_rules.h"

#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/cudnn/legacy_convolution.h"

namespace convtune::worker::cudnn {
namespace {

using testing::HasSubstr;

constexpr uint32_t kTensorCore = NoteBit(NumericalNote::kTensorCore);

TEST(LegacyNotesTest, TheMathTypeSaysWhatMayBeUsed) {
  const auto notes = [](DataType type, int math) {
    return LegacyNotes(Operation::kFwd, type, 3, /*algorithm=*/1, math, /*deterministic=*/true);
  };
  EXPECT_EQ(notes(DataType::kF16, CUDNN_TENSOR_OP_MATH), kTensorCore);
  EXPECT_EQ(notes(DataType::kF16, CUDNN_DEFAULT_MATH), 0U);
  EXPECT_EQ(notes(DataType::kF16, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION), kTensorCore);
  // It may be TF32.
  EXPECT_EQ(notes(DataType::kF32, CUDNN_DEFAULT_MATH), kTensorCore);
  EXPECT_EQ(notes(DataType::kF32, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION),
            kTensorCore | NoteBit(NumericalNote::kDownConvertInputs));
  EXPECT_EQ(notes(DataType::kF32, CUDNN_FMA_MATH), 0U);
}

TEST(LegacyNotesTest, NondeterminismIsWhatFindSaid) {
  EXPECT_EQ(LegacyNotes(Operation::kFwd, DataType::kF32, 3, 0, CUDNN_FMA_MATH, false),
            NoteBit(NumericalNote::kNondeterministic));
}

TEST(LegacyNotesTest, TransformsFollowFromTheAlgorithmOfTheOperation) {
  const uint32_t fft = NoteBit(NumericalNote::kFft);
  const uint32_t winograd = NoteBit(NumericalNote::kWinograd);
  const uint32_t fused = winograd | NoteBit(NumericalNote::kWinogradTile4x4);
  const uint32_t nonfused = winograd | NoteBit(NumericalNote::kWinogradTile6x6);
  const auto notes = [](Operation operation, int algorithm, int64_t filter_extent = 3) {
    return LegacyNotes(operation, DataType::kF32, filter_extent, algorithm, CUDNN_FMA_MATH, true);
  };
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING), fft);
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD), fused);
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED), nonfused);
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, 5),
            winograd | NoteBit(NumericalNote::kWinogradTile13x13));
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT), 0U);
  EXPECT_EQ(notes(Operation::kBwdData, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT), fft);
  EXPECT_EQ(notes(Operation::kBwdData, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD), fused);
  EXPECT_EQ(notes(Operation::kBwdData, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED),
            nonfused);
  EXPECT_EQ(notes(Operation::kBwdFilter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT), fft);
  EXPECT_EQ(notes(Operation::kBwdFilter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED),
            nonfused);
  EXPECT_EQ(notes(Operation::kBwdFilter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3), 0U);
}

bool Reduces(Operation operation, DataType type, int algorithm, bool deterministic) {
  const uint32_t notes =
      LegacyNotes(operation, type, 3, algorithm, CUDNN_TENSOR_OP_MATH, deterministic);
  return (notes & NoteBit(NumericalNote::kReducedPrecisionReduction)) != 0;
}

TEST(LegacyNotesTest, SumsMayBeKeptInLessWhereTheGraphEnginesOfTheSameKernelsSaySo) {
  for (const DataType type : {DataType::kF16, DataType::kBF16}) {
    EXPECT_TRUE(Reduces(Operation::kBwdData, type, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false));
    EXPECT_TRUE(Reduces(Operation::kBwdFilter, type, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false));
    EXPECT_TRUE(Reduces(Operation::kBwdFilter, type, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false));
    // Also where cudnnFind says that it is deterministic, or of one that is not.
    EXPECT_TRUE(Reduces(Operation::kBwdFilter, type, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, true));
    EXPECT_TRUE(Reduces(Operation::kBwdData, type, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, false));
    EXPECT_FALSE(Reduces(Operation::kBwdData, type, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true));
    EXPECT_FALSE(Reduces(Operation::kFwd, type, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true));
    EXPECT_TRUE(Reduces(Operation::kFwd, type, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, true));
  }
  EXPECT_FALSE(
      Reduces(Operation::kBwdData, DataType::kF32, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false));
  EXPECT_FALSE(
      Reduces(Operation::kBwdFilter, DataType::kF32, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false));
  for (const DataType type : {DataType::kF16, DataType::kBF16, DataType::kF32}) {
    EXPECT_TRUE(Reduces(Operation::kBwdFilter, type, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true));
  }
  EXPECT_FALSE(
      Reduces(Operation::kBwdFilter, DataType::kF64, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true));
}

std::string Obstacle(const std::string& text) {
  return LegacyObstacle(ConvProblem::Parse(text).value());
}

TEST(LegacyObstacleTest, PlainProblemsHaveNone) {
  EXPECT_EQ(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,f16,nhwc"), "");
  EXPECT_EQ(Obstacle("bwd_data,x=1x8x4x16x16,w=8x8x3x3x3,pad=1"), "");
}

TEST(LegacyObstacleTest, NamesWhatTheLegacyApiLacks) {
  EXPECT_THAT(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,epilogue=bias"), HasSubstr("epilogue"));
  EXPECT_THAT(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,pad=0:1x1:0"), HasSubstr("padding"));
  EXPECT_THAT(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,sms=16"), HasSubstr("SM-count"));
  for (const char* type : {"e4m3", "e5m2,out=f16"}) {
    EXPECT_EQ(Obstacle(std::string("fwd,x=1x16x16x16,w=16x16x3x3,nhwc,") + type),
              "the legacy API has no fp8")
        << type;
  }
}

}  // namespace
}  // namespace convtune::worker::cudnn
