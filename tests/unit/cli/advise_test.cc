#include "client/cli/advise_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/advise_ceilings.h"
#include "client/cli/advise_words.h"
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
  const Variant variant{Known(), 8, false, true};
  const Advice advice = Advise(variant, TimedAt(1000), variant, TimedAt(1000));
  EXPECT_EQ(FindBound(variant, advice, 0, {}).bound, Bound::kUnknown);
  Ceilings ceilings;
  ceilings.tflops[{DataType::kF16, false}] = {advice.tflops * 2, 6, false};
  ceilings.gbytes = {advice.gbytes * 4, 6, false};
  const BoundShare compute = FindBound(variant, advice, 0, ceilings);
  EXPECT_EQ(compute.bound, Bound::kCompute);
  EXPECT_EQ(BoundWord(compute), "compute 50%");
  ceilings.gbytes.value = advice.gbytes / 0.8;
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "memory 80%");
}

TEST(FindBoundTest, AProbeIsACeilingWithoutOthers) {
  const Variant variant{Known(), 8, false, true};
  const Advice advice = Advise(variant, TimedAt(1000), variant, TimedAt(1000));
  Ceilings ceilings;
  ceilings.tflops[{DataType::kF16, false}] = {advice.tflops * 2, 1, true};
  ceilings.gbytes = {advice.gbytes * 4, 1, true};
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "compute 50%");
  // A row that is faster than the probe is the ceiling then.
  Raise(Known(), false, 500, &ceilings);
  Raise(Known(), false, 100, &ceilings);
  const Advice fast = Advise(variant, TimedAt(100), variant, TimedAt(100));
  EXPECT_EQ(BoundWord(FindBound(variant, fast, 0, ceilings)), "compute 100%");
}

TEST(CeilingWordsTest, SayWhatWasNotProbed) {
  Ceilings ceilings;
  ceilings.gbytes = {4000, 3, true};
  ceilings.tflops[{DataType::kF16, false}] = {700, 2, true};
  ceilings.tflops[{DataType::kF32, true}] = {40, 1, false};
  EXPECT_EQ(CeilingWords(ceilings),
            "BOUND: the nearest to the card's ceilings, measured by probes; memory 4000 GB/s; f16 "
            "700.0 TFLOP/s. Not probed: f32 without tf32; there it is the best seen, and - with "
            "fewer than 5 others.");
}

TEST(MakeCeilingProbesTest, OneThingLimitsEach) {
  int memory = 0;
  for (const CeilingProbe& probe :
       MakeCeilingProbes({DataType::kF16, DataType::kF32, DataType::kF64, DataType::kI8})) {
    const double intensity =
        FloatingPointOperations(probe.problem) / static_cast<double>(probe.problem.TensorBytes());
    // Of cards that cuDNN 9 supports, tensor cores reach 100 to 600 operations for
    // each byte of memory; f32 and f64 without them 10 to 60.
    if (probe.limit == Bound::kMemory) {
      ++memory;
      EXPECT_LT(intensity, 40) << probe.problem.ToText();
      EXPECT_GT(probe.problem.TensorBytes(), 400'000'000) << "in the caches of some card";
    } else {
      const bool narrow =
          probe.problem.data_type() == DataType::kF16 || probe.problem.data_type() == DataType::kI8;
      EXPECT_GT(intensity, narrow ? 700 : 200) << probe.problem.ToText();
    }
  }
  EXPECT_EQ(memory, 2);
}

TEST(FindBoundTest, NothingIsItsOwnCeiling) {
  const Variant variant{Known(), 8, false, true};
  const Advice advice = Advise(variant, TimedAt(10), variant, TimedAt(10));
  Ceilings ceilings;
  Raise(Known(), false, 10, &ceilings);
  for (int i = 0; i < kFewestOthers; ++i) Raise(Known(), false, 20, &ceilings);
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "-");
  const Advice slower = Advise(variant, TimedAt(20), variant, TimedAt(20));
  EXPECT_EQ(BoundWord(FindBound(variant, slower, 0, ceilings)), "compute 50%");
}

TEST(FindBoundTest, AFewOthersAreNoCeiling) {
  const Variant variant{Known(), 8, false, true};
  const Advice advice = Advise(variant, TimedAt(20), variant, TimedAt(20));
  Ceilings ceilings;
  Raise(Known(), false, 20, &ceilings);
  for (int i = 0; i < kFewestOthers; ++i) {
    EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "-") << i;
    Raise(Known(), false, 10, &ceilings);
  }
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 0, ceilings)), "compute 50%");
}

TEST(FindBoundTest, AHostAsSlowAsTheWholeIsTheBound) {
  const Variant variant{Known(), 8, false, true};
  const Advice advice = Advise(variant, TimedAt(10), variant, TimedAt(10));
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 10, {})), "launch");
  EXPECT_EQ(BoundWord(FindBound(variant, advice, 5, {})), "-");
}

TEST(FindBoundTest, WithoutTf32IsACeilingOfItsOwn) {
  const ConvProblem problem = Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1");
  Ceilings ceilings;
  for (int i = 0; i <= kFewestOthers; ++i) Raise(problem, false, 10, &ceilings);
  Raise(problem, true, 40, &ceilings);
  Raise(problem, true, 0, &ceilings);
  EXPECT_EQ(ceilings.gbytes.count, kFewestOthers + 2);
  const Advice advice =
      Advise({problem, 8, true, false}, TimedAt(40), {problem, 8, true, false}, TimedAt(40));
  EXPECT_EQ(BoundWord(FindBound({problem, 8, true, false}, advice, 0, ceilings)), "-");
  EXPECT_EQ(BoundWord(FindBound({problem, 8, false, false}, advice, 0, ceilings)), "compute 25%");
}

// A row that takes `us`, against 100 us as asked for.
AdviceRow Row(const std::string& type, bool asked, double us, v1::Evidence evidence, double error) {
  AdviceRow row{
      {Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1," + type), 8, false, asked}, {}, {}, {}};
  row.result = TimedAt(us);
  row.result.mutable_answer()->set_evidence(evidence);
  if (error > 0) row.result.mutable_answer()->mutable_winner()->set_error(error);
  row.advice = Advise(row.variant, row.result, row.variant, TimedAt(100));
  return row;
}

TEST(ConcludeTest, ANarrowerTypeComesWithItsError) {
  const AdviceRow asked = Row("f32", true, 100, v1::EVIDENCE_MEASURED, 1e-4);
  const AdviceRow narrow = Row("bf16", false, 50, v1::EVIDENCE_MEASURED, 4e-3);
  EXPECT_EQ(Conclude({asked, narrow}),
            "The most per image: batch 8, nchw, bf16, 2.00 times as fast as asked for. Its type is "
            "narrower: the numerical error is 4.0e-03, as asked for 1.0e-04.");
  const AdviceRow unknown = Row("bf16", false, 50, v1::EVIDENCE_MEASURED, 0);
  EXPECT_THAT(Conclude({asked, unknown}), testing::HasSubstr("numerical error is not known"));
  const AdviceRow same = Row("f32,nhwc", false, 50, v1::EVIDENCE_MEASURED, 1e-4);
  EXPECT_THAT(Conclude({asked, same}), testing::Not(testing::HasSubstr("narrower")));
}

TEST(ConcludeTest, LittleEvidenceIsNotRecommended) {
  const AdviceRow asked = Row("f32", true, 100, v1::EVIDENCE_MEASURED, 0);
  const AdviceRow weak = Row("f16", false, 20, v1::EVIDENCE_INCOMPLETE, 0);
  EXPECT_EQ(Conclude({asked, weak}),
            "As it was asked for, it is the fastest of these. Faster, but with incomplete evidence "
            "only: batch 8, nchw, f16.");
  const AdviceRow weakly_asked = Row("f32", true, 100, v1::EVIDENCE_INCOMPLETE, 0);
  EXPECT_THAT(Conclude({weakly_asked, weak}),
              testing::HasSubstr("No recommendation: its evidence is incomplete only."));
  const AdviceRow strong = Row("f32,nhwc", false, 50, v1::EVIDENCE_MEASURED, 0);
  EXPECT_THAT(Conclude({weakly_asked, strong}),
              testing::HasSubstr("what was asked for has incomplete evidence only."));
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

TEST(AdviseCommandTest, WhatATuningMayCostReachesTheDaemon) {
  FakeDaemon daemon;
  v1::TuningJob job;
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_persisted(true);
  daemon.states = {job};
  const RunResult result =
      RunProgram({"advise", ProblemText(8), "--budget", "2s", "--memory-budget", "2GiB",
                  "--wait-idle", "5m", "--address", daemon.address()});
  EXPECT_EQ(result.code, 0) << result.err;
  const v1::TuningOptions options = daemon.last_create().options();
  EXPECT_EQ(options.time_budget().seconds(), 2);
  EXPECT_EQ(options.memory_budget_bytes(), int64_t{2} << 30);
  EXPECT_EQ(options.wait_idle().seconds(), 300);
}

TEST(AdviseCommandTest, NamesABadWait) {
  const RunResult result = RunProgram({"advise", ProblemText(8), "--wait-idle", "2h"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--wait-idle: must be at most 1h"), std::string::npos) << result.err;
}

TEST(AdviseCommandTest, NamesABadType) {
  const RunResult result = RunProgram({"advise", ProblemText(8), "--dtypes", "f17"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--dtypes: must be of f64, f32, f16, bf16, i8, e4m3, e5m2, has 'f17'"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace convtune
