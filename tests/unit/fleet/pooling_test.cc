#include "client/fleet/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/fleet/agent.h"

namespace convtune::fleet {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

Candidate Timed(int engine, double median_us, double noise = 0.01) {
  Candidate candidate;
  candidate.id = EngineConfig{engine, {}};
  candidate.status = CandidateStatus::kTimed;
  candidate.heuristic_rank = engine;
  candidate.median_us = median_us;
  candidate.q1_us = candidate.low_us = median_us * (1 - noise);
  candidate.q3_us = candidate.high_us = median_us * (1 + noise);
  candidate.sample_count = 20;
  return candidate;
}

// What one node says, its fastest first.
db::fleet::NodeEvidence Says(int64_t node, std::vector<Candidate> candidates) {
  db::fleet::NodeEvidence evidence;
  evidence.node_id = node;
  evidence.receive_time = absl::FromUnixSeconds(1000 + node);
  evidence.tuning.key = {"problem", "environment"};
  evidence.tuning.evidence = Evidence::kMeasured;
  evidence.tuning.candidates = std::move(candidates);
  return evidence;
}

// What so many nodes say alike.
std::vector<db::fleet::NodeEvidence> AllSay(int nodes, const std::vector<Candidate>& candidates) {
  std::vector<db::fleet::NodeEvidence> evidence;
  for (int node = 0; node < nodes; ++node) evidence.push_back(Says(node, candidates));
  return evidence;
}

std::vector<int64_t> Engines(const db::fleet::PooledTuning& pooled) {
  std::vector<int64_t> engines;
  for (const Candidate& candidate : pooled.tuning.candidates) {
    engines.push_back(std::get<EngineConfig>(candidate.id).engine_index);
  }
  return engines;
}

TEST(PoolingTest, OneNodesEvidenceStaysAsItIs) {
  db::fleet::NodeEvidence only = Says(1, {Timed(2, 10), Timed(1, 12)});
  only.tuning.candidates[0].other_times = {
      {LaunchMode::kEager, CacheState::kCold, 20, 19, 21, 7},
      {LaunchMode::kGraphCapture, CacheState::kInputHot, 8, 7.5, 8.5, 9}};
  only.tuning.candidates[1].host_us = 3;
  const db::fleet::PooledTuning pooled = PoolEvidence({only});
  EXPECT_EQ(pooled.tuning.candidates, only.tuning.candidates);
}

TEST(PoolingTest, ASlowNodeDoesNotMoveTheTimes) {
  std::vector<db::fleet::NodeEvidence> evidence = AllSay(4, {Timed(2, 10), Timed(1, 12)});
  evidence.push_back(Says(4, {Timed(2, 30), Timed(1, 36)}));  // three times as slow
  const db::fleet::PooledTuning pooled = PoolEvidence(evidence);
  EXPECT_THAT(pooled.tuning.candidates[0].median_us, DoubleNear(10, 1e-9));
  EXPECT_THAT(pooled.tuning.candidates[1].median_us, DoubleNear(12, 1e-9));
}

TEST(PoolingTest, ACandidateThatOnlySlowNodesTimedIsNotTakenForSlow) {
  std::vector<db::fleet::NodeEvidence> evidence = AllSay(4, {Timed(2, 10), Timed(1, 12)});
  // Twice as slow, and the only ones that tried engine 3, which is the fastest.
  for (int node = 4; node < 7; ++node) {
    evidence.push_back(Says(node, {Timed(3, 18), Timed(2, 20), Timed(1, 24)}));
  }
  const db::fleet::PooledTuning pooled = PoolEvidence(evidence);
  EXPECT_THAT(Engines(pooled), ElementsAre(3, 2, 1));
  EXPECT_THAT(pooled.tuning.candidates[0].median_us, DoubleNear(9, 1e-9));
}

TEST(PoolingTest, OneNodeThatIsWrongDoesNotDecide) {
  std::vector<db::fleet::NodeEvidence> evidence;
  for (int node = 0; node < 6; ++node) {
    evidence.push_back(Says(node, {Timed(2, 10 + 0.01 * node), Timed(1, 12)}));
  }
  evidence.push_back(Says(6, {Timed(1, 1), Timed(2, 10)}));
  const db::fleet::PooledTuning pooled = PoolEvidence(evidence);
  EXPECT_EQ(Engines(pooled)[0], 2);
}

TEST(PoolingTest, TheStockChoiceStaysWithinNoise) {
  // Engine 0 is the stock choice; engine 5 is faster by less than the nodes differ.
  EXPECT_EQ(Engines(PoolEvidence(AllSay(5, {Timed(5, 9.95, 0.05), Timed(0, 10, 0.05)})))[0], 0);
}

TEST(PoolingTest, OnlyTheBestEvidenceCounts) {
  db::fleet::NodeEvidence guess = Says(1, {Timed(7, 1)});
  guess.tuning.candidates[0].status = CandidateStatus::kFinalized;
  guess.tuning.evidence = Evidence::kHeuristic;
  const db::fleet::PooledTuning pooled = PoolEvidence({guess, Says(2, {Timed(2, 10)})});
  EXPECT_THAT(Engines(pooled), ElementsAre(2));
  EXPECT_EQ(pooled.tuning.evidence, Evidence::kMeasured);
}

TEST(PoolingTest, AContendedMeasurementDoesNotCountBesideACleanOne) {
  db::fleet::NodeEvidence clean = Says(1, {Timed(2, 10), Timed(1, 12)});
  db::fleet::NodeEvidence contended = Says(2, {Timed(1, 5), Timed(2, 30)});
  clean.tuning.evidence = contended.tuning.evidence = Evidence::kIncomplete;
  contended.tuning.conditions.known = true;
  contended.tuning.conditions.other_processes = 2;
  const db::fleet::PooledTuning pooled = PoolEvidence({contended, clean, contended});
  EXPECT_EQ(pooled.tuning.candidates, clean.tuning.candidates);
  EXPECT_EQ(Engines(PoolEvidence({contended}))[0], 1);  // better than nothing
}

TEST(PoolingTest, ANodeThatDeviatesCountsOnlyWhereNobodyElseMeasured) {
  db::fleet::NodeEvidence liar = Says(3, {Timed(1, 1), Timed(2, 10), Timed(0, 20)});
  liar.deviates = true;
  const db::fleet::NodeEvidence honest = Says(1, {Timed(2, 10), Timed(1, 12), Timed(0, 20)});
  const db::fleet::PooledTuning pooled = PoolEvidence({honest, liar});
  EXPECT_EQ(pooled.tuning.candidates, honest.tuning.candidates);
  EXPECT_THAT(pooled.voices, ElementsAre(1, 3));
  EXPECT_THAT(pooled.left_out, ElementsAre(3));
  // Of two nobody knows which one is wrong, whoever is left out.
  EXPECT_THAT(pooled.dissenters, ElementsAre(1, 3));
  EXPECT_EQ(pooled.agreeing, 1);
  const db::fleet::NodeEvidence other = Says(2, honest.tuning.candidates);
  for (const bool deviates : {false, true}) {
    liar.deviates = deviates;
    EXPECT_THAT(PoolEvidence({honest, other, liar}).dissenters, ElementsAre(3));
  }
  const db::fleet::PooledTuning alone = PoolEvidence({liar});
  EXPECT_EQ(Engines(alone)[0], 1);
  EXPECT_EQ(alone.agreeing, 0);
}

TEST(PoolingTest, TheRatioToTheNodesOwnStockChoiceCounts) {
  // The second node is three times as slow, and its stock choice, engine 0, likewise.
  const db::fleet::PooledTuning pooled =
      PoolEvidence({Says(1, {Timed(1, 10), Timed(0, 20)}), Says(2, {Timed(1, 30.3), Timed(0, 60)}),
                    Says(3, {Timed(1, 10.1), Timed(0, 20)})});
  EXPECT_THAT(pooled.tuning.candidates[0].median_us, DoubleNear(10.1, 1e-9));
  EXPECT_THAT(pooled.tuning.candidates[1].median_us, DoubleNear(20, 1e-9));
  EXPECT_EQ(pooled.agreeing, 3);
  EXPECT_TRUE(pooled.dissenters.empty());
}

TEST(PoolingTest, WhatWasPooledBeforeIsOneVoiceOfNobody) {
  db::fleet::NodeEvidence relayed = Says(1, {Timed(2, 10), Timed(1, 12)});
  relayed.relayed = true;
  const db::fleet::PooledTuning pooled = PoolEvidence({relayed});
  EXPECT_EQ(pooled.agreeing, 1);
  EXPECT_TRUE(pooled.voices.empty());
}

TEST(PoolingTest, AFailedClockDoesNotCountBesideASoundOne) {
  db::fleet::NodeEvidence sound = Says(1, {Timed(2, 10), Timed(1, 12)});
  db::fleet::NodeEvidence failed = Says(2, {Timed(1, 5), Timed(2, 30)});
  sound.tuning.evidence = failed.tuning.evidence = Evidence::kIncomplete;
  AddReason(IncompleteReason::kMemory, "skipped for memory", &sound.tuning);
  AddReason(IncompleteReason::kNoClock, "the clock failed", &failed.tuning);
  EXPECT_EQ(PoolEvidence({sound, failed}).tuning.candidates, sound.tuning.candidates);
}

TEST(PoolingTest, ACandidateThatFailsOnMostNodesIsNoAnswer) {
  Candidate failed = Timed(3, 0);
  failed.status = CandidateStatus::kFailed;
  failed.error_message = "CUDNN_STATUS_EXECUTION_FAILED";
  const db::fleet::PooledTuning pooled =
      PoolEvidence({Says(1, {Timed(3, 5), Timed(2, 10)}), Says(2, {Timed(2, 10), failed}),
                    Says(3, {Timed(2, 10), failed})});
  EXPECT_EQ(Engines(pooled)[0], 2);
  EXPECT_FALSE(pooled.tuning.candidates[1].usable());
}

TEST(PoolingTest, TheIntervalOfManyNodesIsThatOfTheSignTest) {
  std::vector<db::fleet::NodeEvidence> evidence;
  // All candidates of a node scale, but engine 2's time differs from node to node.
  const double medians[] = {9.0, 9.6, 9.8, 10.0, 10.1, 10.2, 10.4, 11.0, 12.0};
  for (int node = 0; node < 9; ++node) {
    evidence.push_back(Says(node, {Timed(2, medians[node]), Timed(1, 20), Timed(3, 30)}));
    evidence.back().tuning.candidates[0].other_times = {
        {LaunchMode::kEager, CacheState::kCold, 2 * medians[node], 0, 99, 4}};
  }
  // n = 9: P(X <= 1) = 0.0195, P(X <= 2) = 0.090 > 0.025: all but the extremes.
  const Candidate pooled = PoolEvidence(evidence).tuning.candidates[0];
  EXPECT_THAT(pooled.median_us, DoubleNear(10.1, 1e-9));
  EXPECT_THAT(pooled.low_us, DoubleNear(9.6, 1e-9));
  EXPECT_THAT(pooled.high_us, DoubleNear(11.0, 1e-9));
  ASSERT_EQ(pooled.other_times.size(), 1);
  const TimeSummary& cold = pooled.other_times[0];
  EXPECT_EQ(cold.cache_state, CacheState::kCold);
  EXPECT_THAT(cold.median_us, DoubleNear(20.2, 1e-9));
  EXPECT_THAT(cold.low_us, DoubleNear(19.2, 1e-9));
  EXPECT_THAT(cold.high_us, DoubleNear(22.0, 1e-9));
  EXPECT_EQ(cold.sample_count, 36);
}

TEST(PoolingTest, TheOrderOfTheNodesDoesNotMatter) {
  std::vector<db::fleet::NodeEvidence> evidence;
  for (int node = 0; node < 7; ++node) {
    evidence.push_back(Says(node, {Timed(2, 10 + node % 3), Timed(1, 12 - node % 2)}));
  }
  const db::fleet::PooledTuning one = PoolEvidence(evidence);
  std::reverse(evidence.begin(), evidence.end());
  const db::fleet::PooledTuning other = PoolEvidence(evidence);
  EXPECT_EQ(Engines(one), Engines(other));
  EXPECT_EQ(one.tuning.candidates[0].median_us, other.tuning.candidates[0].median_us);
}

}  // namespace
}  // namespace convtune::fleet
