#include "server/decision/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace convtune::decision {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint32_t kAny = ContestBit(Contest::kAny);
constexpr uint32_t kLight = ContestBit(Contest::kNoWorkspace);

std::vector<Candidate> TimesOf(const Race& race) {
  std::vector<Candidate> times(race.Samples().size());
  std::vector<Candidate*> to;
  for (Candidate& candidate : times) to.push_back(&candidate);
  race.WriteTimes(to);
  return times;
}

class RaceTest : public ::testing::Test {
 protected:
  // Runs until the race is over; `us` are the true times.
  RaceStep RunToTheEnd(Race* race, const std::vector<double>& us, double jitter = 0.002) {
    while (true) {
      const RaceStep step = race->Next();
      steps_.push_back(step);
      if (step.stop != StopReason::kNone) return step;
      for (int round = race->rounds(); round < race->end_round(); ++round) {
        for (const size_t place : step.runners) {
          race->Add(place, round, {us[place] * std::exp(jitter * normal_(random_)), 0});
        }
      }
    }
  }

  std::mt19937_64 random_{3};
  std::normal_distribution<double> normal_;
  std::vector<RaceStep> steps_;
};

TEST_F(RaceTest, ScreensAllAndLeavesBehindWhatIsFarBehind) {
  Race race({{kAny}, {kAny}, {kAny}});
  EXPECT_EQ(RunToTheEnd(&race, {10, 10.2, 30}).stop, StopReason::kSettled);
  EXPECT_THAT(steps_[0].runners, ElementsAre(0, 1, 2));
  EXPECT_EQ(steps_[0].rounds, 3);
  EXPECT_THAT(steps_[1].runners, ElementsAre(0, 1));
}

TEST_F(RaceTest, TheStockChoiceRunsToTheEnd) {
  Race race({{kAny}, {kAny}, {kAny, true}});
  RunToTheEnd(&race, {10, 10.05, 30}, 0.006);
  ASSERT_GT(steps_.size(), 3U);
  for (size_t i = 0; i + 1 < steps_.size(); ++i) EXPECT_THAT(steps_[i].runners, Contains(2));
}

TEST_F(RaceTest, EveryContestHasItsOwnLeader) {
  // 2 and 3 are far behind, and the only ones without workspace.
  Race race({{kAny}, {kAny}, {kAny | kLight}, {kAny | kLight}});
  EXPECT_EQ(RunToTheEnd(&race, {10, 10.3, 30, 30.2}).stop, StopReason::kSettled);
  EXPECT_THAT(steps_[1].runners, ElementsAre(0, 1, 2, 3));
  const std::vector<Candidate> times = TimesOf(race);
  EXPECT_LT(times[2].high_us, times[3].low_us);
}

TEST_F(RaceTest, EqualCandidatesAreSettledAsATie) {
  Race race({{kAny}, {kAny}});
  EXPECT_EQ(RunToTheEnd(&race, {10, 10}).stop, StopReason::kSettled);
  const std::vector<Candidate> times = TimesOf(race);
  EXPECT_NEAR(times[0].median_us, times[1].median_us, 0.05);
  EXPECT_LT(race.rounds(), kMaxRounds);
}

TEST_F(RaceTest, NoiseThatIsTooLargeEndsIt) {
  Race race({{kAny}, {kAny}});
  EXPECT_EQ(RunToTheEnd(&race, {10, 10}, 0.05).stop, StopReason::kNoiseSettled);
  EXPECT_LT(race.rounds(), 150);
}

TEST_F(RaceTest, OneAloneGetsEnoughSamplesForAMeasurement) {
  Race race({{kAny, true}});
  EXPECT_EQ(RunToTheEnd(&race, {10}).stop, StopReason::kOneCandidate);
  EXPECT_EQ(TimesOf(race)[0].sample_count, 12);
}

TEST_F(RaceTest, OneWhoseRivalIsFarBehindWasNotTheOnlyOneTimed) {
  Race race({{kAny}, {kAny}});
  EXPECT_EQ(RunToTheEnd(&race, {10, 30}).stop, StopReason::kSettled);
  EXPECT_EQ(TimesOf(race)[1].sample_count, 3);
}

TEST_F(RaceTest, WhoLeavesCountsNoMore) {
  Race race({{kAny}, {kAny}});
  const RaceStep step = race.Next();
  race.Add(0, 0, {10, 0});
  race.Add(1, 0, {5, 0});
  race.Leave(1);
  EXPECT_THAT(race.runners(), ElementsAre(0));
  EXPECT_EQ(TimesOf(race)[1].sample_count, 0);
  race.Leave(0);
  EXPECT_NE(race.Next().stop, StopReason::kNone);
}

TEST_F(RaceTest, WhoseRunsDoNotCompareLeaves) {
  Race race({{kAny}, {kAny}, {kAny}});
  const RaceStep step = race.Next();
  for (int round = 0; round < step.rounds; ++round) {
    race.Add(0, round, {10, 0, true});
    race.Add(1, round, {10, 0, true});
    // Faster, as far as its times say anything.
    race.Add(2, round, {9, 0, false});
  }
  EXPECT_THAT(race.LeaveOtherKind(), ElementsAre(2));
  EXPECT_THAT(race.LeaveOtherKind(), IsEmpty());
  EXPECT_THAT(race.Next().runners, ElementsAre(0, 1));
  EXPECT_EQ(TimesOf(race)[2].sample_count, 0);
}

TEST_F(RaceTest, WhatWasKnownOfOneThatLeftHoldsToTheEnd) {
  Race race({{kAny}, {kAny}, {kAny}});
  // 2 is behind by 6%, and gone when the others are known to be as fast.
  RunToTheEnd(&race, {10, 10.05, 10.6}, 0.006);
  const std::vector<Candidate> times = TimesOf(race);
  EXPECT_THAT(steps_.back().runners, IsEmpty());
  EXPECT_THAT(steps_[steps_.size() - 2].runners, Not(Contains(2)));
  EXPECT_GT(times[2].low_us, times[0].high_us);
}

TEST_F(RaceTest, ChanceClocksOfAFewRoundsDropNobody) {
  // 0 is the faster one, and had the low clock in each round of the screening.
  Race race({{kAny}, {kAny}});
  race.Next();
  for (int round = 0; round < 3; ++round) {
    race.Add(0, round, {10 / 0.85, 1500});
    race.Add(1, round, {10.2, 1765});
  }
  EXPECT_THAT(race.Next().runners, ElementsAre(0, 1));
}

TEST_F(RaceTest, OneFarBehindWithoutAClockIsLeftBehindAllTheSame) {
  Race race({{kAny}, {kAny}, {kAny}});
  race.Next();
  for (int round = 0; round < 3; ++round) {
    race.Add(0, round, {10, 1980});
    race.Add(1, round, {100, 0});
    race.Add(2, round, {100, round == 1 ? 0.0 : 1980.0});
  }
  EXPECT_THAT(race.Next().runners, ElementsAre(0));
}

TEST_F(RaceTest, OneWithoutAClockIsSettledAsSoonAsOthers) {
  Race race({{kAny}, {kAny}});
  RaceStep step = race.Next();
  for (; step.stop == StopReason::kNone; step = race.Next()) {
    for (int round = race.rounds(); round < race.end_round(); ++round) {
      const double noise = std::exp(0.002 * normal_(random_));
      for (const size_t place : step.runners) {
        race.Add(place, round, {place == 0 ? 10.0 : 10.5 * noise, place == 0 ? 1980.0 : 0.0});
      }
    }
  }
  EXPECT_EQ(step.stop, StopReason::kSettled);
  EXPECT_LE(race.rounds(), 12);
}

}  // namespace
}  // namespace convtune::decision
