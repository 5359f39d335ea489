#include "server/worker/legacy_notes.h"

#include <cudnn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune {
namespace {

using testing::HasSubstr;

constexpr uint32_t kTensorCore = NoteBit(NumericalNote::kTensorCore);
constexpr uint32_t kDownConvert = NoteBit(NumericalNote::kDownConvertInputs);

uint32_t Notes(DataType type, int algorithm, int math, bool deterministic = true) {
  return LegacyNumericalNotes(Operation::kFwd, type, {algorithm, math}, deterministic);
}

TEST(LegacyNotesTest, TensorOpOnHalfUsesTensorCores) {
  EXPECT_EQ(Notes(DataType::kF16, 1, CUDNN_TENSOR_OP_MATH), kTensorCore);
}

TEST(LegacyNotesTest, DefaultMathOnSingleMayBeTf32) {
  EXPECT_EQ(Notes(DataType::kF32, 1, CUDNN_DEFAULT_MATH), kTensorCore);
  EXPECT_EQ(Notes(DataType::kF16, 1, CUDNN_DEFAULT_MATH), 0U);
}

TEST(LegacyNotesTest, AllowConversionNarrowsSingle) {
  EXPECT_EQ(Notes(DataType::kF32, 1, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION),
            kTensorCore | kDownConvert);
  EXPECT_EQ(Notes(DataType::kF16, 1, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION), kTensorCore);
}

TEST(LegacyNotesTest, FmaMathHasNoNote) { EXPECT_EQ(Notes(DataType::kF32, 1, CUDNN_FMA_MATH), 0U); }

TEST(LegacyNotesTest, NondeterminismIsWhatFindSaid) {
  EXPECT_EQ(Notes(DataType::kF32, 0, CUDNN_FMA_MATH, false),
            NoteBit(NumericalNote::kNondeterministic));
}

TEST(LegacyNotesTest, TransformsFollowFromTheAlgorithmOfTheOperation) {
  const uint32_t fft = NoteBit(NumericalNote::kFft);
  const uint32_t winograd = NoteBit(NumericalNote::kWinograd);
  const auto notes = [](Operation operation, int algorithm) {
    return LegacyNumericalNotes(operation, DataType::kF32, {algorithm, CUDNN_FMA_MATH}, true);
  };
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING), fft);
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED), winograd);
  EXPECT_EQ(notes(Operation::kFwd, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT), 0U);
  EXPECT_EQ(notes(Operation::kBwdData, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT), fft);
  EXPECT_EQ(notes(Operation::kBwdData, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD), winograd);
  EXPECT_EQ(notes(Operation::kBwdFilter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT), fft);
  EXPECT_EQ(notes(Operation::kBwdFilter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED),
            winograd);
  EXPECT_EQ(notes(Operation::kBwdFilter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3), 0U);
}

std::string Obstacle(const char* text) {
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(text);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return problem.ok() ? LegacyObstacle(*problem) : "";
}

TEST(LegacyObstacleTest, PlainProblemsHaveNone) {
  EXPECT_EQ(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,f16,nhwc"), "");
  EXPECT_EQ(Obstacle("bwd_data,x=1x8x4x16x16,w=8x8x3x3x3,pad=1"), "");
}

TEST(LegacyObstacleTest, NamesWhatTheLegacyApiLacks) {
  EXPECT_THAT(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,epilogue=bias"), HasSubstr("epilogue"));
  EXPECT_THAT(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,pad=0:1x1:0"), HasSubstr("padding"));
  EXPECT_THAT(Obstacle("fwd,x=1x8x16x16,w=8x8x3x3,sms=16"), HasSubstr("SM-count"));
}

}  // namespace
}  // namespace convtune
