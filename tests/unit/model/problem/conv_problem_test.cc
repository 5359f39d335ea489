#include "proto/model/problem/conv_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune {
namespace {

using testing::ElementsAre;

ConvProblem Parsed(std::string_view text) {
  absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(text);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *problem;
}

TEST(ConvProblemTest, ComputesTheOutput) {
  EXPECT_THAT(Parsed("fwd,x=32x3x224x224,w=64x3x7x7,pad=3,stride=2").y_dims(),
              ElementsAre(32, 64, 112, 112));
  EXPECT_THAT(Parsed("fwd,x=1x1x10x10,w=1x1x3x3,dilation=2,pad=1:0").y_dims(),
              ElementsAre(1, 1, 7, 7));
}

TEST(ConvProblemTest, PacksStridesOfEitherLayout) {
  const ConvProblem nchw = Parsed("fwd,x=2x3x4x5,w=6x3x1x2");
  EXPECT_THAT(nchw.x_strides(), ElementsAre(60, 20, 5, 1));
  EXPECT_THAT(nchw.w_strides(), ElementsAre(6, 2, 2, 1));
  EXPECT_THAT(nchw.y_strides(), ElementsAre(96, 16, 4, 1));
  const ConvProblem nhwc = Parsed("fwd,x=2x3x4x5,w=6x3x1x2,nhwc");
  EXPECT_THAT(nhwc.x_strides(), ElementsAre(60, 1, 15, 3));
  EXPECT_THAT(nhwc.w_strides(), ElementsAre(6, 1, 6, 3));
  EXPECT_THAT(nhwc.y_strides(), ElementsAre(96, 1, 24, 6));
}

TEST(ConvProblemTest, RecognisesPackedLayoutsInStrides) {
  EXPECT_EQ(Parsed("fwd,x=2x3x4x5,w=6x3x1x2,xstrides=60x20x5x1,wstrides=6x2x2x1,"
                   "ystrides=96x16x4x1"),
            Parsed("fwd,x=2x3x4x5,w=6x3x1x2,nchw"));
  EXPECT_EQ(Parsed("fwd,x=2x3x4x5,w=6x3x1x2,xstrides=60x1x15x3,wstrides=6x1x6x3,"
                   "ystrides=96x1x24x6"),
            Parsed("fwd,x=2x3x4x5,w=6x3x1x2,nhwc"));
}

TEST(ConvProblemTest, StridesOfSizeOneDimensionsDoNotMatter) {
  EXPECT_EQ(Parsed("fwd,x=1x3x4x5,w=6x3x1x1,xstrides=777x20x5x1,wstrides=3x1x9x9,"
                   "ystrides=123x20x5x1"),
            Parsed("fwd,x=1x3x4x5,w=6x3x1x1,nchw"));
}

TEST(ConvProblemTest, IsNchwWhereBothLayoutsFit) {
  EXPECT_EQ(Parsed("fwd,x=16x64x1x1,w=32x64x1x1,nhwc"), Parsed("fwd,x=16x64x1x1,w=32x64x1x1,nchw"));
  EXPECT_EQ(Parsed("fwd,x=16x64x1x1,w=32x64x1x1,nhwc").layout(), TensorLayout::kNchw);
}

TEST(ConvProblemTest, MixedLayoutsAreStridedAndCanonical) {
  const ConvProblem a =
      Parsed("fwd,x=1x3x4x5,w=6x3x1x2,xstrides=9x1x15x3,wstrides=6x2x7x1,ystrides=1x16x4x1");
  EXPECT_EQ(a.layout(), TensorLayout::kStrided);
  EXPECT_THAT(a.x_strides(), ElementsAre(60, 1, 15, 3));
  EXPECT_THAT(a.w_strides(), ElementsAre(6, 2, 2, 1));
  EXPECT_THAT(a.y_strides(), ElementsAre(96, 16, 4, 1));
}

TEST(ConvProblemTest, OneDimensionEqualsItsTwoDimensionalForm) {
  EXPECT_EQ(Parsed("fwd,x=2x4x9,w=4x4x3,pad=1,stride=2,xstrides=36x9x1,wstrides=12x3x1,"
                   "ystrides=20x5x1"),
            Parsed("fwd,x=2x4x1x9,w=4x4x1x3,pad=0x1,stride=1x2"));
}

TEST(ConvProblemTest, DefaultTypesFollowTheInput) {
  const ConvProblem f64 = Parsed("fwd,x=1x4x3x3,w=4x4x3x3,f64");
  EXPECT_EQ(f64.output_type(), DataType::kF64);
  EXPECT_EQ(f64.compute_type(), DataType::kF64);
  EXPECT_EQ(f64.intermediate_type(), DataType::kF64);
  const ConvProblem i8 = Parsed("fwd,x=1x4x3x3,w=4x4x3x3,i8");
  EXPECT_EQ(i8.output_type(), DataType::kI32);
  EXPECT_EQ(i8.compute_type(), DataType::kI32);
  const ConvProblem fused = Parsed("fwd,x=1x4x3x3,w=4x4x3x3,i8,epilogue=bias+relu");
  EXPECT_EQ(fused.output_type(), DataType::kI8);
  EXPECT_EQ(fused.intermediate_type(), DataType::kF32);
  EXPECT_EQ(Parsed("fwd,x=1x4x3x3,w=4x4x3x3,e5m2").output_type(), DataType::kE5M2);
}

TEST(ConvProblemTest, TakesDepthwiseGroups) {
  const ConvProblem problem = Parsed("bwd_filter,x=1x32x7x7,w=64x1x3x3,groups=32,pad=1");
  EXPECT_THAT(problem.y_dims(), ElementsAre(1, 64, 7, 7));
}

TEST(ConvProblemTest, TakesTheLargestDimension) {
  EXPECT_TRUE(ConvProblem::Parse("fwd,x=2147483647x1x1x1,w=1x1x1x1").ok());
}

TEST(ConvProblemTest, CountsTheBytesOfItsTensors) {
  EXPECT_EQ(Parsed("fwd,x=2x3x4x5,w=6x3x1x2,f16").TensorBytes(), 2 * (120 + 36 + 192));
  EXPECT_EQ(Parsed("fwd,x=2x3x4x5,w=6x3x1x2,f16,out=f32").TensorBytes(), 2 * (120 + 36) + 4 * 192);
  EXPECT_EQ(Parsed("bwd_data,x=2x3x4x5,w=6x3x1x2,f16,out=f32").TensorBytes(),
            4 * 120 + 2 * (36 + 192));
  EXPECT_EQ(Parsed("bwd_filter,x=2x3x4x5,w=6x3x1x2,f16,out=f32").TensorBytes(),
            4 * 36 + 2 * (120 + 192));
  EXPECT_EQ(Parsed("fwd,x=2x3x4x5,w=6x3x1x2,f16,epilogue=add+bias+relu").TensorBytes(),
            2 * (120 + 36 + 192 + 192 + 6));
}

TEST(ConvProblemTest, CountsGapsBetweenRowsToo) {
  EXPECT_EQ(Parsed("fwd,x=2x1x2x2,w=1x1x1x1,xstrides=100x50x10x1,wstrides=1x1x1x1,"
                   "ystrides=4x4x2x1")
                .TensorBytes(),
            4 * (112 + 1 + 8));
}

TEST(ConvProblemTest, WithAlignmentChangesNothingElse) {
  const ConvProblem problem = Parsed("fwd,x=2x3x4x5,w=6x3x1x2");
  EXPECT_EQ(problem.WithAlignment(4), Parsed("fwd,x=2x3x4x5,w=6x3x1x2,align=4"));
  EXPECT_EQ(problem.WithAlignment(4).WithAlignment(16), problem);
}

}  // namespace
}  // namespace convtune
