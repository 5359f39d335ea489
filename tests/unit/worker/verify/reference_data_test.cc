#include "server/worker/verify/reference_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "server/worker/verify/tensor_data.h"

namespace convtune::worker::verify {
namespace {

constexpr int64_t kX = 1;
constexpr int64_t kW = 2;
constexpr int64_t kY = 3;

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t elements = 1;
  for (const int64_t dim : dims) elements *= dim;
  return elements;
}

std::vector<cudnn::GraphTensor> TensorsOf(const ConvProblem& problem) {
  const DataType type = problem.output_type();
  const Operation operation = problem.operation();
  return {
      {cudnn::TensorRole::kX, kX, type, Elements(problem.x_dims()),
       operation == Operation::kBwdData},
      {cudnn::TensorRole::kW, kW, type, Elements(problem.w_dims()),
       operation == Operation::kBwdFilter},
      {cudnn::TensorRole::kY, kY, type, Elements(problem.y_dims()), operation == Operation::kFwd}};
}

TEST(HostWorkTest, TheReferenceIsThatOfTheInputs) {
  const ConvProblem problem = Problem("fwd,x=1x8x6x6,w=4x8x3x3,pad=1,f16");
  ReferenceData work(problem, TensorsOf(problem), 4);
  ReferenceInputs inputs;
  using cudnn::TensorRole;
  inputs[TensorRole::kX] = DecodeElements(DataType::kF16, work.Block(kX));
  inputs[TensorRole::kW] = DecodeElements(DataType::kF16, work.Block(kW));
  ASSERT_EQ(inputs[TensorRole::kX].size(), 8U * 36U);
  std::map<int64_t, double> expected;
  for (const auto& at : ChooseElements(problem, int64_t{1} << 40, 1)) {
    const ReferenceElement element = ComputeElement(problem, inputs, at);
    expected[element.offset] = element.value;
  }
  ASSERT_EQ(work.Reference().size(), 4U * 36U);
  for (const ReferenceElement& element : work.Reference()) {
    EXPECT_EQ(element.value, expected.at(element.offset));
  }
}

// As a self-check needs it: any order of adding up, in any type, gives this.
TEST(HostWorkTest, SmallIntegersGiveAnExactReferenceOfTheWholeOutput) {
  for (const char* const operation : {"fwd", "bwd_data", "bwd_filter"}) {
    const ConvProblem problem =
        Problem(std::string(operation) + ",x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16");
    ReferenceData work(problem, TensorsOf(problem), 1, InputValues::kSmallIntegers);
    std::set<int64_t> offsets;
    double largest = 0;
    for (const ReferenceElement& element : work.Reference()) {
      offsets.insert(element.offset);
      largest = std::max(largest, std::abs(element.value));
      EXPECT_EQ(element.value, std::nearbyint(element.value));
      // Partial sums are exact too, in f16 and with the 11 bits of TF32.
      EXPECT_LE(element.magnitude, 2048);
    }
    for (const cudnn::GraphTensor& tensor : TensorsOf(problem)) {
      if (!tensor.output) continue;
      EXPECT_EQ(static_cast<int64_t>(offsets.size()), tensor.elements);
    }
    EXPECT_GT(largest, 8);
  }
}

TEST(HostWorkTest, ThreadsMakeNoDifference) {
  const ConvProblem problem = Problem("bwd_filter,x=2x64x28x28,w=32x64x3x3,pad=1,nhwc,bf16");
  ReferenceData alone(problem, TensorsOf(problem), 1);
  ReferenceData together(problem, TensorsOf(problem), 8);
  EXPECT_EQ(alone.Block(kX), together.Block(kX));
  EXPECT_EQ(alone.Block(kY), together.Block(kY));
  ASSERT_EQ(alone.Reference().size(), together.Reference().size());
  for (size_t i = 0; i < alone.Reference().size(); ++i) {
    EXPECT_EQ(alone.Reference()[i].offset, together.Reference()[i].offset);
    EXPECT_EQ(alone.Reference()[i].value, together.Reference()[i].value);
  }
}

TEST(HostWorkTest, LongInputsRepeatABlock) {
  const ConvProblem problem = Problem("fwd,x=4x64x112x112,w=4x64x1x1,f16");
  ReferenceData work(problem, TensorsOf(problem), 2);
  EXPECT_EQ(work.Block(kX).size(), ((size_t{1} << 20) + 7) * 2);
  EXPECT_EQ(work.Block(kW).size(), 4U * 64U * 2U);
}

TEST(HostWorkTest, ActivationsAreNotNegativeAndHalfOfAGradientIsZero) {
  const ConvProblem problem = Problem("bwd_filter,x=1x8x32x32,w=8x8x1x1,f32");
  ReferenceData work(problem, TensorsOf(problem), 1);
  for (const double value : DecodeElements(DataType::kF32, work.Block(kX))) EXPECT_GE(value, 0);
  int zeros = 0;
  int negative = 0;
  for (const double value : DecodeElements(DataType::kF32, work.Block(kY))) {
    zeros += value == 0 ? 1 : 0;
    negative += value < 0 ? 1 : 0;
  }
  EXPECT_NEAR(zeros, 4096, 400);
  EXPECT_NEAR(negative, 2048, 300);
}

// Forward i8 shapes of networks, and what their i8 outputs are like.
class NarrowOutput : public testing::TestWithParam<const char*> {};

TEST_P(NarrowOutput, IsNeitherSaturatedNorZero) {
  const ConvProblem problem = Problem(GetParam());
  std::vector<cudnn::GraphTensor> tensors = TensorsOf(problem);
  for (cudnn::GraphTensor& tensor : tensors) tensor.type = DataType::kI8;
  tensors.push_back(
      {cudnn::TensorRole::kResidual, 4, DataType::kI8, Elements(problem.y_dims()), false});
  tensors.push_back({cudnn::TensorRole::kBias, 5, DataType::kI8, problem.w_dims()[0], false});
  ReferenceData work(problem, tensors, 2);
  ASSERT_GE(work.Reference().size(), 2000U);
  int saturated = 0;
  int zero = 0;
  double largest = 0;
  for (const ReferenceElement& element : work.Reference()) {
    saturated += element.value > 127 || element.value < -128 ? 1 : 0;
    zero += element.value == 0 ? 1 : 0;
    largest = std::max(largest, std::abs(element.value));
  }
  const auto count = static_cast<double>(work.Reference().size());
  EXPECT_LT(saturated, 0.01 * count);
  // Half is, behind a ReLU; of filters of nine products where half of x is zero, some more.
  EXPECT_LT(zero, (problem.epilogue().empty() ? 0.15 : 0.6) * count);
  EXPECT_GT(largest, 60);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, NarrowOutput,
    testing::Values("fwd,x=8x64x56x56,w=64x64x1x1,nhwc,i8,out=i8",
                    "fwd,x=8x64x56x56,w=256x64x1x1,nhwc,i8,epilogue=add+bias+relu",
                    "fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,i8,epilogue=bias+relu",
                    "fwd,x=8x512x7x7,w=512x512x3x3,pad=1,nhwc,i8,out=i8",
                    "fwd,x=8x2048x7x7,w=512x2048x1x1,nhwc,i8,out=i8",
                    "fwd,x=8x3x224x224,w=64x3x7x7,stride=2,pad=3,nhwc,i8,out=i8",
                    "fwd,x=8x96x112x112,w=96x1x3x3,groups=96,pad=1,nhwc,i8,out=i8",
                    "fwd,x=1x1024x64x64,w=1024x1024x3x3,pad=1,nhwc,i8,epilogue=add+bias+relu"));

TEST(HostWorkTest, AWideOutputTakesWideIntegers) {
  const ConvProblem problem = Problem("fwd,x=8x64x56x56,w=64x64x1x1,nhwc,i8");
  std::vector<cudnn::GraphTensor> tensors = TensorsOf(problem);
  for (cudnn::GraphTensor& tensor : tensors) tensor.type = DataType::kI8;
  ReferenceData work(problem, tensors, 1);
  double largest = 0;
  for (const double value : DecodeElements(DataType::kI8, work.Block(kW))) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_GT(largest, 80);
}

TEST(HostWorkTest, WhereOneElementWouldTakeTooLongThereIsNoReference) {
  const ConvProblem problem = Problem("bwd_filter,x=2048x8x512x512,w=8x8x1x1,f16");
  ReferenceData work(problem, TensorsOf(problem), 2);
  EXPECT_TRUE(work.Reference().empty());
}

}  // namespace
}  // namespace convtune::worker::verify
