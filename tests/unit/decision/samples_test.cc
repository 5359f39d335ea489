#include "server/decision/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "proto/model/tuning/median.h"

namespace convtune::decision {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Series WithClocks(std::vector<double> clocks) {
  Series series;
  for (const double clock : clocks) series.push_back({10, clock});
  return series;
}

std::vector<bool> Valid(const Series& series) {
  std::vector<bool> valid;
  for (const RunSample& run : series) valid.push_back(run.valid());
  return valid;
}

TEST(DiscardSlowClocksTest, DropsTheRunThatThrottled) {
  std::vector<Series> series = {WithClocks({1700, 1400, 1700, 1700}),
                                WithClocks({1700, 1700, 1700, 1700}),
                                WithClocks({1700, 1710, 1690, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 1);
  EXPECT_THAT(Valid(series[0]), ElementsAre(true, false, true, true));
}

TEST(DiscardSlowClocksTest, KeepsRoundsThatAreSlowForAll) {
  std::vector<Series> series = {WithClocks({1700, 1400, 1700, 1700}),
                                WithClocks({1700, 1400, 1700, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

TEST(DiscardSlowClocksTest, KeepsWhatAlwaysDrawsSoMuchPower) {
  std::vector<Series> series = {WithClocks({1400, 1410, 1390, 1400}),
                                WithClocks({1700, 1700, 1700, 1700}),
                                WithClocks({1700, 1700, 1700, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

TEST(DiscardSlowClocksTest, KeepsEarlyRoundsOfWhatIsLeftAlone) {
  // The fast-clocked one left after four rounds.
  std::vector<Series> series = {WithClocks({1400, 1400, 1400, 1400, 1400, 1400, 1400, 1400}),
                                WithClocks({1700, 1700, 1700, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

TEST(DiscardSlowClocksTest, WithoutClocksNothingIsDropped) {
  std::vector<Series> series = {WithClocks({0, 0}), WithClocks({0, 1700})};
  EXPECT_EQ(DiscardSlowClocks(&series), 0);
}

// 'h' is a blocked run, 'u' one that was not, '.' none.
Series OfKinds(const std::string& kinds) {
  Series series;
  for (const char kind : kinds) series.push_back({kind == '.' ? 0.0 : 10.0, 0, kind != 'u'});
  return series;
}

TEST(CountsBlockedTest, GoesByMostRunsOfACandidateAndMostCandidates) {
  EXPECT_TRUE(CountsBlocked(OfKinds("hhu.")));
  EXPECT_TRUE(CountsBlocked(OfKinds("hu")));
  EXPECT_FALSE(CountsBlocked(OfKinds("huu")));
  EXPECT_TRUE(CountsBlocked(Series()));
  // One candidate without a run has no vote.
  EXPECT_FALSE(CountsBlocked({OfKinds("uuuu"), OfKinds("uu"), OfKinds("hh"), OfKinds("...")}));
  EXPECT_TRUE(CountsBlocked({OfKinds("uuuu"), OfKinds("hh")}));
}

TEST(DiscardOtherKindTest, NoSeriesIsLeftWithBoth) {
  std::vector<Series> series = {OfKinds("hhuh"), OfKinds("uuuu"), OfKinds("hh")};
  DiscardOtherKind(&series);
  EXPECT_THAT(Valid(series[0]), ElementsAre(true, true, false, true));
  EXPECT_THAT(Valid(series[1]), ElementsAre(false, false, false, false));
  EXPECT_THAT(Valid(series[2]), ElementsAre(true, true));
}

Series SeriesOf(std::initializer_list<double> times) {
  Series series;
  for (const double time : times) series.push_back({time, 0});
  return series;
}

TEST(MedianTest, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
}

TEST(MedianIntervalTest, NeedsEnoughValues) {
  // 0.5^9 is more than 0.001, 0.5^10 less.
  EXPECT_FALSE(MedianInterval(std::vector<double>(9, 1.0), 0.001).has_value());
  EXPECT_TRUE(MedianInterval(std::vector<double>(10, 1.0), 0.001).has_value());
}

TEST(MedianIntervalTest, HasTheRanksOfTheTables) {
  // Hahn and Meeker's table for 95%: n = 20 gives the 6th and the 15th value.
  std::vector<double> values;
  for (int i = 1; i <= 20; ++i) values.push_back(i);
  const auto interval = MedianInterval(values, 0.025);
  ASSERT_TRUE(interval.has_value());
  EXPECT_EQ(interval->low, 6);
  EXPECT_EQ(interval->high, 15);
}

TEST(MedianIntervalTest, MissesTheMedianNoMoreOftenThanItSays) {
  std::mt19937 random(11);
  std::exponential_distribution<double> skewed;
  const double median = std::log(2.0);
  int below = 0;
  int above = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(25);
    for (double& value : values) value = skewed(random);
    const auto interval = MedianInterval(values, 0.025);
    below += median < interval->low ? 1 : 0;
    above += median > interval->high ? 1 : 0;
  }
  // Three standard deviations above the expected 100.
  EXPECT_LE(below, 130);
  EXPECT_LE(above, 130);
  EXPECT_GT(below + above, 40);
}

TEST(RoundRatiosTest, ComparesRoundsInWhichBothAreValid) {
  EXPECT_THAT(RoundRatios(SeriesOf({2, 0, 6, 8}), SeriesOf({1, 1, 3})), ElementsAre(2, 2));
  EXPECT_THAT(RoundRatios(SeriesOf({2}), {}), IsEmpty());
}

TEST(RoundRatiosTest, CountsCyclesWhereBothClocksAreKnown) {
  const Series a = {{3, 1000}, {3, 0}, {3, 1000}, {3, 0}};
  const Series b = {{2, 1500}, {2, 1500}, {2, 0}, {2, 0}};
  EXPECT_THAT(RoundRatios(a, b, /*in_cycles=*/true), ElementsAre(1, 1.5, 1.5, 1.5));
}

TEST(RoundRatiosTest, ComparesBlockedRunsWithBlockedRunsOnly) {
  const Series a = {{3, 0, true}, {3, 0, false}, {4, 0, false}, {5, 0, true}};
  const Series b = {{1, 0, true}, {1, 0, true}, {1, 0, false}, {1, 0, false}};
  EXPECT_THAT(RoundRatios(a, b), ElementsAre(3, 4));
}

TEST(RoundRatiosTest, NoTimeOfTheHostIsCountedInCycles) {
  const Series a = {{3, 1000, true}, {3, 1000, false}};
  const Series b = {{2, 1500, true}, {2, 1500, false}};
  EXPECT_THAT(RoundRatios(a, b, /*in_cycles=*/true), ElementsAre(1, 1.5));
}

TEST(EstimateRatioTest, WhatSlowsAllCandidatesOfARoundIsNotInIt) {
  Series a;
  Series b;
  for (int round = 0; round < 30; ++round) {
    const double drift = 1 + 0.1 * round;
    a.push_back({11 * drift, 0});
    b.push_back({10 * drift, 0});
  }
  const RatioEstimate estimate = EstimateRatio(RoundRatios(a, b), 0.005);
  EXPECT_TRUE(estimate.sure);
  EXPECT_NEAR(estimate.interval.low, 1.1, 1e-9);
  EXPECT_NEAR(estimate.interval.high, 1.1, 1e-9);
}

TEST(EstimateRatioTest, OfFewRoundsItIsTheRangeAndNotSure) {
  const RatioEstimate estimate =
      EstimateRatio(RoundRatios(SeriesOf({2, 3, 4}), SeriesOf({1, 1, 1})), 0.005);
  EXPECT_FALSE(estimate.sure);
  EXPECT_EQ(estimate.rounds, 3);
  EXPECT_EQ(estimate.interval.low, 2);
  EXPECT_EQ(estimate.interval.high, 4);
}

}  // namespace
}  // namespace convtune::decision
