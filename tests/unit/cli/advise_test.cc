#include "client/cli/advise_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune {
namespace {

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

v1::BatchGetResult TimedAt(double us) {
  v1::BatchGetResult result;
  result.mutable_answer()->mutable_winner()->set_median_us(us);
  return result;
}

TEST(MakeVariantsTest, CrossesLayoutsTypesAndBatches) {
  const auto variants = MakeVariants(Problem("fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"),
                                     {DataType::kF32, DataType::kF16}, {1, 16});
  ASSERT_TRUE(variants.ok());
  // Two batches, two layouts; f16, f32 and f32 without TF32.
  EXPECT_EQ(variants->size(), 12U);
  EXPECT_TRUE(variants->front().asked);
  EXPECT_EQ(variants->front().problem.layout(), TensorLayout::kNhwc);
  int asked = 0;
  for (const Variant& variant : *variants) {
    asked += variant.asked ? 1 : 0;
    EXPECT_EQ(variant.problem.x_dims()[0], variant.batch);
    EXPECT_TRUE(!variant.forbid_tf32 || variant.problem.data_type() == DataType::kF32);
  }
  EXPECT_EQ(asked, 1);
}

TEST(MakeVariantsTest, RefusesStridesOfItsOwn) {
  const auto variants = MakeVariants(
      Problem("fwd,x=2x8x4x4,w=8x8x1x1,xstrides=256x16x4x1,wstrides=8x1x1x1,ystrides=128x16x4x1"),
      {}, {});
  EXPECT_THAT(std::string(variants.status().message()), testing::HasSubstr("nchw or nhwc"));
}

TEST(FloatingPointOperationsTest, CountsMultiplicationsAndAdditions) {
  EXPECT_EQ(FloatingPointOperations(Problem("fwd,x=2x4x8x8,w=6x2x3x3,pad=1,groups=2")),
            2.0 * (2 * 6 * 8 * 8) * (2 * 3 * 3));
}

TEST(AdviseTest, ComparesTimePerImage) {
  const Variant asked{Problem("fwd,x=1x64x56x56,w=64x64x3x3,pad=1"), 1, false, true};
  const Variant other{Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1"), 8, false, false};
  const Advice advice = Advise(other, TimedAt(40), asked, TimedAt(10));
  EXPECT_EQ(advice.speed_up, 2);
  EXPECT_NEAR(advice.tflops, 8 * 2.0 * 64 * 56 * 56 * 576 / 40e-6 / 1e12, 1e-9);
}

TEST(AdviseTest, SaysNothingOfWhatWasNotTimed) {
  const Variant asked{Problem("fwd,x=1x64x56x56,w=64x64x3x3,pad=1"), 1, false, true};
  const Advice advice = Advise(asked, TimedAt(0), asked, TimedAt(0));
  EXPECT_EQ(advice.speed_up, 0);
  EXPECT_EQ(advice.tflops, 0);
}

ConvProblem Known() { return Problem("fwd,x=8x512x28x28,w=512x64x3x3,pad=1,groups=8,f16,nhwc"); }

TEST(FindBoundTest, TheNearestCeilingIsTheBound) {
  Ceilings ceilings;
  const Variant variant{Known(), 8, false, true};
  Advice advice = Advise(variant, TimedAt(1000), variant, TimedAt(1000));
  EXPECT_EQ(FindBound(variant, advice, 0, ceilings).bound, Bound::kUnknown);
  ceilings.tflops[{DataType::kF16, false}] = advice.tflops * 2;
  ceilings.gbytes = advice.gbytes * 4;
  const BoundShare compute = FindBound(variant, advice, 0, ceilings);
  EXPECT_EQ(compute.bound, Bound::kCompute);
  EXPECT_EQ(BoundWord(compute), "compute 50%");
  ceilings.gbytes = advice.gbytes;
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "memory 100%");
}

TEST(FindBoundTest, AHostAsSlowAsTheWholeIsTheBound) {
  Ceilings ceilings;
  Raise(Known(), false, 10, &ceilings);
  const Variant variant{Known(), 8, false, true};
  const Advice advice = Advise(variant, TimedAt(10), variant, TimedAt(10));
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 9.9, ceilings)), "launch");
  EXPECT_EQ(FindBound(variant, advice, 5, ceilings).share, 1);
}

TEST(FindBoundTest, WithoutTf32IsACeilingOfItsOwn) {
  const ConvProblem problem = Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1");
  Ceilings ceilings;
  Raise(problem, false, 10, &ceilings);
  Raise(problem, true, 40, &ceilings);
  Raise(problem, true, 0, &ceilings);
  EXPECT_EQ(ceilings.problems, 2);
  const Variant variant{problem, 8, true, false};
  const Advice advice = Advise(variant, TimedAt(40), variant, TimedAt(40));
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "compute 100%");
}

TEST(AdviseCommandTest, ShowsVariantsSideBySide) {
  FakeDaemon daemon;
  v1::TuningJob job;
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_persisted(true);
  daemon.states = {job};
  const RunResult result = RunProgram({"advise", ProblemText(8), "--dtypes", "f32,f16", "--batches",
                                       "8,32", "--address", daemon.address()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("SPEED-UP"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("BOUND"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("no tf32"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("graph:eng34,k2=5"), std::string::npos) << result.out;
}

TEST(AdviseCommandTest, NamesABadType) {
  const RunResult result = RunProgram({"advise", ProblemText(8), "--dtypes", "f17"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--dtypes: 'f17' is no data type"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace convtune
