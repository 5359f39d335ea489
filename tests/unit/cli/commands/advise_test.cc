#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/commands/advise/advise.h"
#include "proto/convert/problem_list.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

// A row that takes `us`.
advise::AdviceRow TimedAt(const ConvProblem& problem, double us, bool forbid_tf32 = false,
                          advise::Probe probe = advise::Probe::kNone) {
  advise::AdviceRow row = {problem, forbid_tf32, false, probe};
  row.result.mutable_answer()->mutable_winner()->set_median_us(us);
  return row;
}

TEST(MakeRowsTest, CrossesLayoutsTypesAndBatches) {
  const auto rows = advise::MakeRows(Problem("fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"),
                                     {DataType::kF32, DataType::kF16}, {1, 16});
  ASSERT_TRUE(rows.ok());
  // Two batches, two layouts; f16, f32 and f32 without TF32.
  EXPECT_EQ(rows->size(), 12U);
  EXPECT_TRUE(rows->front().asked);
  EXPECT_EQ(rows->front().problem.layout(), TensorLayout::kNhwc);
  int asked = 0;
  for (const advise::AdviceRow& row : *rows) {
    asked += row.asked ? 1 : 0;
    EXPECT_TRUE(row.batch() == 1 || row.batch() == 16);
    EXPECT_TRUE(!row.forbid_tf32 || row.problem.data_type() == DataType::kF32);
  }
  EXPECT_EQ(asked, 1);
}

TEST(MakeRowsTest, RefusesStridesOfItsOwn) {
  const auto rows = advise::MakeRows(
      Problem("fwd,x=2x8x4x4,w=8x8x1x1,xstrides=256x16x4x1,wstrides=8x1x1x1,ystrides=128x16x4x1"),
      {}, {});
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("nchw or nhwc"));
}

TEST(AdviceRowTest, ComparesTimePerImage) {
  const advise::AdviceRow one = TimedAt(Problem("fwd,x=1x64x56x56,w=64x64x3x3,pad=1"), 10);
  const advise::AdviceRow eight = TimedAt(Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1"), 40);
  EXPECT_EQ(eight.per_second() / one.per_second(), 2);
  EXPECT_NEAR(eight.tflops(), 8 * 2.0 * 64 * 56 * 56 * 576 / 40e-6 / 1e12, 1e-9);
}

TEST(AdviceRowTest, SaysNothingOfWhatWasNotTimed) {
  const advise::AdviceRow row = TimedAt(Problem("fwd,x=1x64x56x56,w=64x64x3x3,pad=1"), 0);
  EXPECT_EQ(row.per_second(), 0);
  EXPECT_EQ(row.tflops(), 0);
}

ConvProblem Known() { return Problem("fwd,x=8x512x28x28,w=512x64x3x3,pad=1,groups=8,f16,nhwc"); }

TEST(BoundWordTest, TheNearestCeilingIsTheBound) {
  const advise::AdviceRow row = TimedAt(Known(), 1000);
  EXPECT_EQ(advise::BoundWord(row, {}), "-");
  advise::Ceilings ceilings;
  ceilings.tflops[{DataType::kF16, false}] = row.tflops() * 2;
  EXPECT_EQ(advise::BoundWord(row, ceilings), "-");
  ceilings.gbytes = row.gbytes() * 4;
  EXPECT_EQ(advise::BoundWord(row, ceilings), "compute 50%");
  ceilings.gbytes = row.gbytes() / 0.8;
  EXPECT_EQ(advise::BoundWord(row, ceilings), "memory 80%");
}

TEST(CeilingsTest, AreOfProbesAndOfRowsThatSurpassThem) {
  const advise::AdviceRow compute = TimedAt(Known(), 20, false, advise::Probe::kCompute);
  const advise::AdviceRow memory = TimedAt(Known(), 10, false, advise::Probe::kMemory);
  const advise::AdviceRow fast = TimedAt(Known(), 5);
  const auto f16 = std::pair(DataType::kF16, false);
  EXPECT_EQ(advise::Ceilings::Of({compute, memory}, {}).tflops[f16], compute.tflops());
  EXPECT_EQ(advise::Ceilings::Of({compute, memory}, {}).gbytes, memory.gbytes());
  EXPECT_EQ(advise::Ceilings::Of({compute, memory}, {fast}).tflops[f16], fast.tflops());
  // One that could not be tuned is none, and rows alone are no ceiling.
  const advise::Ceilings none =
      advise::Ceilings::Of({TimedAt(Known(), 0, false, advise::Probe::kMemory)}, {fast});
  EXPECT_TRUE(none.tflops.empty());
  EXPECT_EQ(none.gbytes, 0);
}

TEST(CeilingWordsTest, NameEachCeiling) {
  advise::Ceilings ceilings;
  ceilings.gbytes = 4000;
  ceilings.tflops[{DataType::kF16, false}] = 700;
  ceilings.tflops[{DataType::kF32, true}] = 40;
  EXPECT_EQ(advise::CeilingWords(ceilings),
            "BOUND: the nearest to the GPU's ceilings, measured by probes; memory 4000 GB/s; f32 "
            "without tf32 40.0 TFLOP/s; f16 700.0 TFLOP/s.");
}

TEST(MakeProbesTest, OneThingLimitsEach) {
  int memory = 0;
  std::vector<advise::AdviceRow> rows;
  for (const std::string type : {"f16", "f32", "f64", "i8"}) {
    rows.push_back(TimedAt(Problem("fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc," + type), 10));
  }
  EXPECT_TRUE(advise::MakeProbes({TimedAt(Known(), 0)}).empty());
  for (const advise::AdviceRow& probe : advise::MakeProbes(rows)) {
    const double intensity =
        EstimatedFlops(probe.problem) / static_cast<double>(probe.problem.TensorBytes());
    // Of GPUs that cuDNN 9 supports, tensor cores reach 100 to 600 operations for
    // each byte of memory; f32 and f64 without them 10 to 60.
    if (probe.probe == advise::Probe::kMemory) {
      memory += probe.forbid_tf32 ? 0 : 1;
      EXPECT_LT(intensity, 40) << probe.problem.ToText();
      EXPECT_GT(probe.problem.TensorBytes(), 400'000'000) << "in the caches of some GPU";
    } else {
      ASSERT_EQ(probe.probe, advise::Probe::kCompute);
      const bool narrow =
          probe.problem.data_type() == DataType::kF16 || probe.problem.data_type() == DataType::kI8;
      EXPECT_GT(intensity, narrow ? 700 : 200) << probe.problem.ToText();
    }
  }
  EXPECT_EQ(memory, 2);
}

TEST(BoundWordTest, AHostAsSlowAsTheWholeIsTheBound) {
  advise::AdviceRow row = TimedAt(Known(), 10);
  row.result.mutable_answer()->mutable_winner()->set_host_us(10);
  EXPECT_EQ(advise::BoundWord(row, {}), "launch");
  row.result.mutable_answer()->mutable_winner()->set_host_us(5);
  EXPECT_EQ(advise::BoundWord(row, {}), "-");
}

TEST(BoundWordTest, WithoutTf32IsACeilingOfItsOwn) {
  const ConvProblem problem = Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1");
  advise::Ceilings ceilings;
  ceilings.gbytes = 1e6;
  ceilings.tflops[{DataType::kF32, false}] = TimedAt(problem, 10).tflops();
  EXPECT_EQ(advise::BoundWord(TimedAt(problem, 40, true), ceilings), "-");
  EXPECT_EQ(advise::BoundWord(TimedAt(problem, 40), ceilings), "compute 25%");
}

// A row that takes `us`.
advise::AdviceRow Row(const std::string& type, bool asked, double us, v1::Evidence evidence,
                      double error) {
  advise::AdviceRow row = TimedAt(Problem("fwd,x=8x64x56x56,w=64x64x3x3,pad=1," + type), us);
  row.asked = asked;
  row.result.mutable_answer()->set_evidence(evidence);
  if (error > 0) row.result.mutable_answer()->mutable_winner()->set_error(error);
  return row;
}

TEST(ConcludeTest, ANarrowerTypeComesWithItsError) {
  const advise::AdviceRow asked = Row("f32", true, 100, v1::EVIDENCE_MEASURED, 1e-4);
  const advise::AdviceRow narrow = Row("bf16", false, 50, v1::EVIDENCE_MEASURED, 4e-3);
  EXPECT_EQ(advise::Conclude({asked, narrow}),
            "The most per image: batch 8, nchw, bf16, 2.00 times as fast as asked for. Its type is "
            "narrower: the numerical error is 4.0e-03, as asked for 1.0e-04.");
  const advise::AdviceRow unknown = Row("bf16", false, 50, v1::EVIDENCE_MEASURED, 0);
  EXPECT_THAT(advise::Conclude({asked, unknown}), HasSubstr("numerical error is not known"));
  const advise::AdviceRow same = Row("f32,nhwc", false, 50, v1::EVIDENCE_MEASURED, 1e-4);
  EXPECT_THAT(advise::Conclude({asked, same}), Not(HasSubstr("narrower")));
}

TEST(ConcludeTest, LittleEvidenceIsNotRecommended) {
  const advise::AdviceRow asked = Row("f32", true, 100, v1::EVIDENCE_MEASURED, 0);
  const advise::AdviceRow weak = Row("f16", false, 20, v1::EVIDENCE_INCOMPLETE, 0);
  EXPECT_EQ(advise::Conclude({asked, weak}),
            "As it was asked for, it is the fastest of these. Faster, but with incomplete evidence "
            "only: batch 8, nchw, f16.");
  const advise::AdviceRow weakly_asked = Row("f32", true, 100, v1::EVIDENCE_INCOMPLETE, 0);
  EXPECT_THAT(advise::Conclude({weakly_asked, weak}),
              HasSubstr("No recommendation: its evidence is incomplete only."));
  const advise::AdviceRow strong = Row("f32,nhwc", false, 50, v1::EVIDENCE_MEASURED, 0);
  EXPECT_THAT(advise::Conclude({weakly_asked, strong}),
              HasSubstr("what was asked for has incomplete evidence only."));
}

class AdviseCommandTest : public DaemonTest {};

TEST_F(AdviseCommandTest, ShowsVariantsSideBySide) {
  const RunResult result =
      Run({"advise", ProblemText(8), "--dtypes", "f32,f16", "--batches", "8,32"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* shown : {"SPEED-UP", "BOUND", "no tf32", "graph:eng34,k2=5"}) {
    EXPECT_THAT(result.out, HasSubstr(shown));
  }
}

TEST_F(AdviseCommandTest, WhatWasNotTimedIsEmptyInCsv) {
  daemon_.misses["f16"] = v1::MISS_REASON_NOT_FOUND;
  EXPECT_THAT(Run({"advise", ProblemText(8), "--dtypes", "f16", "--csv"}).out,
              HasSubstr("nhwc,f16,,,,,,-,,,miss: not found,,"));
}

TEST_F(AdviseCommandTest, AVariantThatTheDaemonRefusesDoesNotLookLikeNoDaemon) {
  daemon_.refused = "f16";
  const RunResult result = Run({"advise", ProblemText(8), "--dtypes", "f16"});
  EXPECT_EQ(result.code, 2) << result.err;
}

}  // namespace
}  // namespace convtune::cli::commands
