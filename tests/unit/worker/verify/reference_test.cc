#include "server/worker/verify/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "proto/model/problem/conv_problem.h"

namespace convtune::worker::verify {
namespace {

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

// As in tests/data/reference/write_cases.py; a multiple of 17 long, so that it
// goes on as it began where memory is longer.
TensorValues Pattern(int a, int b) {
  TensorValues values;
  for (int i = 0; i < 17 * 5; ++i) values.push_back((i * a + b) % 17 - 8);
  return values;
}

ReferenceInputs Patterns() {
  using enum cudnn::TensorRole;
  return {{kX, Pattern(7, 3)},
          {kW, Pattern(5, 1)},
          {kY, Pattern(11, 6)},
          {kResidual, Pattern(3, 2)},
          {kBias, Pattern(13, 4)}};
}

// Every element, in the order of the coordinates.
std::vector<double> WholeOutput(const ConvProblem& problem) {
  std::vector<double> values;
  for (const auto& coordinates : ChooseElements(problem, int64_t{1} << 40, 1)) {
    values.push_back(ComputeElement(problem, Patterns(), coordinates).value);
  }
  return values;
}

TEST(ReferenceTest, GivesWhatNumpyGives) {
  std::ifstream file(CONVTUNE_REFERENCE_CASES);
  std::string line;
  int cases = 0;
  while (std::getline(file, line)) {
    const size_t tab = line.find('\t');
    ASSERT_NE(tab, std::string::npos);
    const ConvProblem problem = Problem(line.substr(0, tab));
    std::istringstream numbers(line.substr(tab));
    std::vector<double> expected;
    for (double value = 0; numbers >> value;) expected.push_back(value);
    EXPECT_EQ(WholeOutput(problem), expected) << problem.ToText();
    ++cases;
  }
  EXPECT_GE(cases, 19);
}

TEST(ReferenceTest, MagnitudeIsTheSumOfTheProductsWithoutTheirSigns) {
  const ConvProblem problem = Problem("fwd,x=1x2x1x1,w=1x2x1x1,epilogue=bias+relu");
  ReferenceInputs inputs;
  inputs[cudnn::TensorRole::kX] = {2, 3};
  inputs[cudnn::TensorRole::kW] = {5, -7};
  inputs[cudnn::TensorRole::kBias] = {-4};
  const ReferenceElement element = ComputeElement(problem, inputs, {0, 0, 0, 0});
  EXPECT_EQ(element.value, 0);  // 10 - 21 - 4, cut
  EXPECT_EQ(element.magnitude, 35);
}

TEST(ReferenceTest, OffsetsFollowTheStridesOfTheOutput) {
  const ConvProblem problem = Problem("fwd,x=2x4x5x6,w=3x4x3x3,nhwc");
  const ReferenceElement element = ComputeElement(problem, Patterns(), {1, 2, 1, 3});
  EXPECT_EQ(element.offset, 1 * 36 + 1 * 12 + 3 * 3 + 2);
}

TEST(ChooseElementsTest, CostsAboutWhatIsAllowed) {
  // 4608 products for each element of y.
  const ConvProblem problem = Problem("fwd,x=32x512x28x28,w=512x512x3x3,pad=1");
  EXPECT_EQ(ProductsPerElement(problem), 4608);
  EXPECT_EQ(ChooseElements(problem, 4608 * 100, 1).size(), 100U);
  EXPECT_EQ(ChooseElements(problem, 4608 * 8, 1).size(), 8U);
  EXPECT_EQ(ChooseElements(problem, 4608, 1).size(), 8U);
  EXPECT_EQ(ChooseElements(problem, 4608 / 2, 1).size(), 4U);
  EXPECT_EQ(ChooseElements(problem, 4608 / 8 - 1, 1).size(), 0U);
  EXPECT_EQ(ChooseElements(problem, int64_t{1} << 40, 1).size(), 2048U);
}

TEST(ChooseElementsTest, LiesInsideAndReachesTheCorners) {
  const ConvProblem problem = Problem("fwd,x=32x64x56x56,w=64x64x3x3,pad=1");
  std::set<std::vector<int64_t>> places;
  for (const auto& at : ChooseElements(problem, int64_t{1} << 40, 1)) {
    ASSERT_EQ(at.size(), 4U);
    for (size_t d = 0; d < 4; ++d) {
      ASSERT_GE(at[d], 0);
      ASSERT_LT(at[d], problem.y_dims()[d]);
    }
    places.insert({at[2], at[3]});
  }
  for (const int64_t h : {0, 55}) {
    for (const int64_t w : {0, 55}) EXPECT_TRUE(places.contains({h, w})) << h << ", " << w;
  }
  EXPECT_GT(places.size(), 500U);
}

TEST(ChooseElementsTest, TheSameSeedChoosesTheSame) {
  const ConvProblem problem = Problem("bwd_filter,x=32x64x56x56,w=64x64x3x3,pad=1");
  EXPECT_EQ(ProductsPerElement(problem), 32 * 56 * 56);
  EXPECT_EQ(ChooseElements(problem, 1 << 25, 3), ChooseElements(problem, 1 << 25, 3));
  EXPECT_NE(ChooseElements(problem, 1 << 25, 3), ChooseElements(problem, 1 << 25, 4));
}

}  // namespace
}  // namespace convtune::worker::verify
