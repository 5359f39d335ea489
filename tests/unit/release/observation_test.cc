#include "server/release/observation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/candidates.h"
#include "tests/unit/release/datagrams.h"

namespace convtune::release {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

template <typename Datagram>
absl::StatusOr<Report> Read(const Datagram& datagram) {
  return ReadReport(&datagram, sizeof datagram, kNow);
}

template <typename Datagram>
void ExpectRefused(const Datagram& datagram, const std::string& words) {
  const auto report = Read(datagram);
  EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr(words));
}

TEST(Observation, AMissNamesProblemEnvironmentAndCount) {
  const auto report = Read(MissOf(kProblem, kH200, 7));
  ASSERT_TRUE(report.ok()) << report.status();
  const auto& miss = std::get<ReportedMiss>(*report);
  EXPECT_EQ(miss.key, KeyOf(kProblem));
  EXPECT_EQ(miss.count, 7);
  EXPECT_TRUE(miss.wants_tuning);
}

TEST(Observation, WhatDidNotSuitTheProgramWantsNoTuning) {
  for (const auto reason :
       {snapshot::UnservedReason::kNotNeutral, snapshot::UnservedReason::kRefused}) {
    const auto report = Read(MissOf(kProblem, kH200, 1, reason));
    ASSERT_TRUE(report.ok());
    EXPECT_FALSE(std::get<ReportedMiss>(*report).wants_tuning);
  }
}

TEST(Observation, APlanIsAnObservedTuningWithOneCandidate) {
  const auto report = Read(PlanOf(kProblem, kH200, 34));
  ASSERT_TRUE(report.ok()) << report.status();
  const Tuning& tuning = std::get<ReportedTuning>(*report).tuning;
  EXPECT_EQ(tuning.evidence, Evidence::kObserved);
  EXPECT_EQ(tuning.tune_time, kNow);
  ASSERT_EQ(tuning.candidates.size(), 1U);
  EXPECT_EQ(ToText(tuning.candidates[0].id), "graph:eng34,k2=5,k14=1");
  EXPECT_TRUE(tuning.candidates[0].usable());
  EXPECT_EQ(tuning.candidates[0].workspace_bytes, 64);
}

TEST(Observation, LegacyResultsAreRankedByTheirTimes) {
  auto datagram = LegacyOf(kProblem, kH200);
  datagram.results[0].time_us = 30;
  const auto report = Read(datagram);
  ASSERT_TRUE(report.ok()) << report.status();
  const Tuning& tuning = std::get<ReportedTuning>(*report).tuning;
  ASSERT_EQ(tuning.candidates.size(), 2U);
  EXPECT_EQ(ToText(tuning.candidates[0].id), "legacy:algo6,math0");
  EXPECT_EQ(tuning.candidates[0].find_us, 20);
  // The API reports no notes: they follow from the algorithm, here Winograd.
  EXPECT_EQ(tuning.candidates[0].numerical_notes,
            NoteBit(NumericalNote::kWinograd) | NoteBit(NumericalNote::kWinogradTile4x4));
  EXPECT_EQ(tuning.candidates[1].numerical_notes, NoteBit(NumericalNote::kTensorCore));
  EXPECT_EQ(tuning.evidence, Evidence::kObserved);
}

TEST(Observation, EveryKindOfNonsenseIsRefusedByName) {
  const auto refused = [](auto datagram, const std::string& words, auto change) {
    change(datagram);
    ExpectRefused(datagram, words);
  };
  refused(MissOf(kProblem, kH200), "reason", [](auto& miss) { miss.reason = 99; });
  const auto plan = PlanOf(kProblem, kH200, 34);
  refused(plan, "engine_index", [](auto& p) { p.engine_index = -1; });
  refused(plan, "knobs", [](auto& p) { p.knobs[1].type = p.knobs[0].type; });
  refused(plan, "knobs", [](auto& p) { p.knobs[0].type = -1; });
  refused(plan, "notes", [](auto& p) { p.numerical_notes = 1; });
  refused(plan, "notes", [](auto& p) { p.behavior_notes = 1; });
  refused(plan, "workspace_bytes", [](auto& p) { p.workspace_bytes = -5; });
  refused(plan, "groups", [](auto& p) { p.header.problem.groups = 7; });
  const auto legacy = LegacyOf(kProblem, kH200);
  for (const float time : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::infinity()}) {
    refused(legacy, "time_us", [time](auto& l) { l.results[1].time_us = time; });
  }
  refused(legacy, "another version", [](auto& l) { l.header.version = 2; });
  const std::string noise(300, 'x');
  EXPECT_FALSE(ReadReport(noise.data(), noise.size(), kNow).ok());
  EXPECT_FALSE(ReadReport(noise.data(), 0, kNow).ok());
}

TEST(Observation, TheSameAgainAddsNothing) {
  const Tuning stored = std::get<ReportedTuning>(*Read(LegacyOf(kProblem, kH200))).tuning;
  Tuning again = stored;
  EXPECT_FALSE(AddsToObserved(stored, &again));
}

TEST(Observation, TheOtherApisCandidatesAreTakenOver) {
  const Tuning stored = std::get<ReportedTuning>(*Read(LegacyOf(kProblem, kH200))).tuning;
  Tuning plan = std::get<ReportedTuning>(*Read(PlanOf(kProblem, kH200, 34))).tuning;
  EXPECT_TRUE(AddsToObserved(stored, &plan));
  EXPECT_EQ(plan.candidates.size(), 3U);
  Tuning newer = std::get<ReportedTuning>(*Read(PlanOf(kProblem, kH200, 35))).tuning;
  EXPECT_TRUE(AddsToObserved(plan, &newer));
  EXPECT_EQ(newer.candidates.size(), 3U);
}

TEST(Observation, WorseEvidenceNeverReplacesBetter) {
  Tuning observed = std::get<ReportedTuning>(*Read(PlanOf(kProblem, kH200, 34))).tuning;
  const Tuning measured = TuningOf({Timed(0, 10)});
  EXPECT_FALSE(AddsToObserved(measured, &observed));
  EXPECT_FALSE(Supersedes(observed, measured, /*forced=*/true));
  const Tuning heuristic = TuningOf({Finalized(0)});
  EXPECT_TRUE(AddsToObserved(heuristic, &observed));
  EXPECT_TRUE(Supersedes(observed, heuristic, /*forced=*/true));
}

}  // namespace
}  // namespace convtune::release
