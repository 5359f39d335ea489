#include "proto/model/tuning/candidate.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/model/tuning/note_rules.h"

namespace convtune {
namespace {

TEST(CandidateTest, TextsAreReadBack) {
  const std::pair<CandidateId, const char*> kCases[] = {
      {EngineConfig{34, {{2, 5}, {3, 0}, {17, -1}}}, "graph:eng34,k2=5,k3=0,k17=-1"},
      {EngineConfig{7, {}}, "graph:eng7"},
      {LegacyAlgorithm{1, 2}, "legacy:algo1,math2"}};
  for (const auto& [id, text] : kCases) {
    EXPECT_EQ(ToText(id), text);
    EXPECT_EQ(*ParseCandidateId(text), id) << text;
  }
  EXPECT_EQ(ApiOf(kCases[0].first), Api::kGraph);
  EXPECT_EQ(ApiOf(kCases[2].first), Api::kLegacy);
}

TEST(CandidateTest, KnobsComeInAnyOrder) {
  EXPECT_EQ(ToText(*ParseCandidateId("graph:eng0,k9=1,k2=5")), "graph:eng0,k2=5,k9=1");
}

TEST(CandidateTest, MalformedTextsAreRefusedByField) {
  const struct {
    const char* text;
    const char* message;
  } kInputs[] = {
      {"", "expected graph: or legacy: in front"},
      {"eng3", "is \"eng3\": expected graph: or legacy: in front"},
      {"graph:", "expected eng and a number from 0 to 2^63-1, found \"\""},
      {"graph:*", "expected eng and a number"},
      {"graph:eng*", "expected eng and a number"},
      {"graph:eng", "expected eng and a number"},
      {"graph:eng-1", "expected eng and a number from 0"},
      {"graph:eng9223372036854775808", "expected eng and a number"},
      {"graph:eng1,", "expected k<type>=<number>, found \"\""},
      {"graph:eng1,k2", "expected k<type>=<number>, found \"k2\""},
      {"graph:eng1,k2=1=2", "expected k2=<number of 64 bits>, found \"k2=1=2\""},
      {"graph:eng1,k2=*", "expected k2=<number of 64 bits>"},
      {"graph:eng1,k2=x", "expected k2=<number of 64 bits>"},
      {"graph:eng1,j2=1", "expected k and a number from 0 to 2^31-1, found \"j2\""},
      {"graph:eng1,k2147483648=1", "expected k and a number from 0 to 2^31-1"},
      {"graph:eng1,k2=1,k2=1", "k2 is given twice"},
      {"legacy:algo1", "expected algo<n>,math<n>"},
      {"legacy:*,math1", "expected algo and a number from 0 to 2^31-1"},
      {"legacy:math1,algo1", "expected algo and a number"},
      {"legacy:algo1,math1,x", "expected algo<n>,math<n>"},
      {"legacy:algo1,math99999999999", "expected math and a number from 0 to 2^31-1"},
  };
  for (const auto& input : kInputs) {
    const absl::Status status = ParseCandidateId(input.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << input.text;
    EXPECT_NE(status.ToString().find(input.message), std::string::npos)
        << input.text << ": " << status;
  }
}

TEST(CandidateTest, LegacyAlgorithmsHaveCudnnsNames) {
  EXPECT_EQ(LegacyAlgorithmName(Operation::kFwd, 1), "IMPLICIT_PRECOMP_GEMM");
  EXPECT_EQ(LegacyAlgorithmName(Operation::kFwd, 7), "WINOGRAD_NONFUSED");
  EXPECT_EQ(LegacyAlgorithmName(Operation::kBwdData, 3), "FFT_TILING");
  EXPECT_EQ(LegacyAlgorithmName(Operation::kBwdFilter, 3), "ALGO_3");
  EXPECT_EQ(LegacyAlgorithmName(Operation::kBwdFilter, 6), "FFT_TILING");
  EXPECT_EQ(LegacyAlgorithmName(Operation::kFwd, 99), "ALGO_99");
  EXPECT_EQ(LegacyAlgorithmName(Operation::kFwd, -1), "ALGO_-1");
}

TEST(CandidateTest, QuartilesAreInterpolated) {
  const struct {
    std::vector<int64_t> samples_ns;
    double q1_us, median_us, q3_us;
  } kCases[] = {{{4000, 1000, 3000, 2000}, 1.75, 2.5, 3.25}, {{7000}, 7, 7, 7}, {{}, 0, 0, 0}};
  for (const auto& c : kCases) {
    Candidate candidate;
    candidate.samples_ns = c.samples_ns;
    candidate.median_us = 3;
    SummarizeSamples(&candidate);
    EXPECT_DOUBLE_EQ(candidate.q1_us, c.q1_us);
    EXPECT_DOUBLE_EQ(candidate.median_us, c.median_us);
    EXPECT_DOUBLE_EQ(candidate.q3_us, c.q3_us);
    EXPECT_EQ(candidate.sample_count, std::ssize(c.samples_ns));
    EXPECT_EQ(candidate.samples_ns, c.samples_ns);
  }
}

TEST(CandidateTest, SamplesAreWholeNanoseconds) {
  EXPECT_EQ(SampleNs(12.3456), 12'346);
  EXPECT_EQ(SampleNs(1e-9), 1);  // 0 would say that it did not run
  EXPECT_EQ(SampleNs(0), 0);
  EXPECT_EQ(SampleNs(-1), 0);
  EXPECT_EQ(SampleNs(std::numeric_limits<double>::quiet_NaN()), 0);
  EXPECT_EQ(SampleNs(std::numeric_limits<double>::infinity()), 1'000'000'000'000'000'000);
}

Candidate Listed(CandidateId id, int rank, CandidateStatus status = CandidateStatus::kTimed) {
  Candidate candidate;
  candidate.id = std::move(id);
  candidate.heuristic_rank = rank;
  candidate.status = status;
  return candidate;
}

TEST(KeepsNumericsTest, ANoteMoreOrAGuaranteeLessDoesNot) {
  constexpr uint32_t kTensorCore = NoteBit(NumericalNote::kTensorCore);
  constexpr uint32_t kNondeterministic = NoteBit(NumericalNote::kNondeterministic);
  constexpr uint32_t kStrictNan = NoteBit(NumericalNote::kStrictNanProp);
  EXPECT_TRUE(KeepsNumerics(0, 0));
  EXPECT_TRUE(KeepsNumerics(0, kTensorCore));
  EXPECT_TRUE(KeepsNumerics(kStrictNan, 0));
  EXPECT_TRUE(KeepsNumerics(kStrictNan, kStrictNan | kTensorCore));
  EXPECT_FALSE(KeepsNumerics(kTensorCore, 0));
  EXPECT_FALSE(KeepsNumerics(kNondeterministic, kTensorCore));
  EXPECT_FALSE(KeepsNumerics(0, kStrictNan));
}

TEST(StockIndexTest, IsTheFirstThatRanOfTheListOfTheApi) {
  const std::vector<Candidate> both = {
      Listed(LegacyAlgorithm{1, 0}, 1),
      Listed(LegacyAlgorithm{2, 0}, 0, CandidateStatus::kFailed),
      Listed(EngineConfig{1, {}}, 0, CandidateStatus::kSkippedBudget),
      Listed(EngineConfig{2, {}}, 2),
      Listed(EngineConfig{3, {}}, 1, CandidateStatus::kFinalized),
      Listed(EngineConfig{4, {}}, -1)};
  EXPECT_EQ(StockIndex(both, Api::kLegacy), 0U);
  EXPECT_EQ(StockIndex(both, Api::kGraph), 4U);
  EXPECT_EQ(StockIndex(both), 4U);
}

TEST(StockIndexTest, CallersOfBothApisHaveTheGraphApisOrElseTheLegacyApis) {
  EXPECT_EQ(StockIndex({Listed(LegacyAlgorithm{1, 0}, 0), Listed(EngineConfig{3, {}}, 5)}), 1U);
  EXPECT_EQ(StockIndex({Listed(LegacyAlgorithm{1, 0}, 1), Listed(LegacyAlgorithm{2, 0}, 0)}), 1U);
  EXPECT_EQ(StockIndex({Listed(LegacyAlgorithm{1, 0}, 0)}, Api::kGraph), std::nullopt);
}

TEST(StockIndexTest, WhatNoListHasIsNoStockChoice) {
  EXPECT_EQ(StockIndex({Listed(LegacyAlgorithm{1, 0}, -1), Listed(EngineConfig{4, {}}, -1)}),
            std::nullopt);
}

}  // namespace
}  // namespace convtune
