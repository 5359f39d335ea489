#include "server/worker/timing/sample_plan.h"

#include <gtest/gtest.h>

namespace convtune::worker::timing {
namespace {

TEST(PlanSampleTest, RunsOnceWhatIsLongOrUnknown) {
  EXPECT_EQ(PlanSample({}).runs, 1);
  EXPECT_EQ(PlanSample({50, 5}).runs, 1);
  EXPECT_EQ(PlanSample({1e6, 5}).runs, 1);
}

TEST(PlanSampleTest, RunsWhatIsShortSeveralTimes) {
  EXPECT_EQ(PlanSample({20, 5}).runs, 3);
  EXPECT_EQ(PlanSample({0.1, 5}).runs, kMostRuns);
  EXPECT_EQ(PlanSample({3, 5}, /*sample_us=*/12).runs, 4);
  EXPECT_EQ(PlanSample({20, 5}, /*sample_us=*/12).runs, 1);
}

TEST(IsHopelessTest, IsTrueBeyond50MillisecondsAndTenTimesTheBest) {
  EXPECT_TRUE(IsHopeless({50'001, 0}, 1000));
  EXPECT_FALSE(IsHopeless({50'000, 0}, 1000));
  EXPECT_TRUE(IsHopeless({100'001, 0}, 10'000));
  EXPECT_FALSE(IsHopeless({100'000, 0}, 10'000));
}

TEST(IsHopelessTest, NothingIsBeforeThereIsATimeToBeat) { EXPECT_FALSE(IsHopeless({1e9, 0}, 0)); }

TEST(IsHopelessTest, TheLaunchOfAFirstRunDoesNotCountSinceItMayHaveLoadedCode) {
  EXPECT_FALSE(IsHopeless({400'000, 399'900}, 100));
  EXPECT_TRUE(IsHopeless({400'000, 300'000}, 100));
}

TEST(PlanSampleTest, TheTimeoutLastsFiftyTimesWhatQueueingIsExpectedToTake) {
  EXPECT_EQ(PlanSample({1, 1000}).block_timeout, absl::Microseconds(16 * 1020 * 50));
}

TEST(PlanSampleTest, TheTimeoutIsNeitherShortNorLong) {
  EXPECT_EQ(PlanSample({}).block_timeout, absl::Milliseconds(200));
  EXPECT_EQ(PlanSample({1, 1e12}).block_timeout, absl::Seconds(2));
}

TEST(SmClockTest, IsCyclesByTime) {
  EXPECT_DOUBLE_EQ(SmClockMhz({1'000'000, 500}, {1'100'000, 500 + 175'500}), 1755);
}

TEST(SmClockTest, IsNotSaidOfMissingStamps) {
  EXPECT_EQ(SmClockMhz({}, {1'100'000, 175'500}), 0);
  EXPECT_EQ(SmClockMhz({1'000'000, 1}, {}), 0);
}

TEST(SmClockTest, IsNotSaidOfAShortTime) {
  EXPECT_EQ(SmClockMhz({1'000'000, 500}, {1'004'999, 500 + 8'774}), 0);
}

TEST(SmClockTest, IsNotSaidOfCountersThatBeganAnew) {
  EXPECT_EQ(SmClockMhz({1'000'000, 500}, {900'000, 175'500}), 0);
  EXPECT_EQ(SmClockMhz({1'000'000, 1'000'000}, {1'100'000, 500}), 0);
  EXPECT_EQ(SmClockMhz({1'000'000, 500}, {1'100'000, 501}), 0);
  EXPECT_EQ(SmClockMhz({1'000'000, 500}, {1'100'000, 90'000'000}), 0);
}

TEST(FlushBytesTest, IsTwiceTheCache) {
  EXPECT_EQ(FlushBytes(50 << 20), 100 << 20);
  EXPECT_EQ(FlushBytes(0), 0);
  EXPECT_EQ(FlushBytes(-1), 0);
}

TEST(FlushBytesTest, WhatIsReadNextCountsForHalfOfAFlushAtMost) {
  EXPECT_EQ(BytesOfFlush(100, 0), 100);
  EXPECT_EQ(BytesOfFlush(100, 30), 70);
  EXPECT_EQ(BytesOfFlush(100, 80), 50);
  EXPECT_EQ(BytesOfFlush(0, 80), 0);
}

TEST(BlockingPolicyTest, ACandidateWhoseBlockingKernelsGaveUpIsTimedWithoutOne) {
  BlockingPolicy policy;
  EXPECT_EQ(policy.Attempts("eng1", /*gave_up_before=*/false), 2);
  policy.Took("eng1", /*blocked=*/false);
  EXPECT_EQ(policy.Attempts("eng1", /*gave_up_before=*/true), 0);
  EXPECT_EQ(policy.Attempts("eng1", /*gave_up_before=*/false), 2);
}

TEST(BlockingPolicyTest, AnEngineWhoseCandidatesAllWaitIsNotTriedAgainAndAloneEndsNothing) {
  BlockingPolicy policy;
  int tried = 0;
  for (int config = 0; config < 14; ++config) {
    if (policy.Attempts("eng22", false) == 0) continue;
    ++tried;
    policy.Took("eng22", /*blocked=*/false);
  }
  EXPECT_EQ(tried, 2);
  EXPECT_EQ(policy.Attempts("eng47", false), 2);
  EXPECT_EQ(policy.DisabledBy(), "");
}

TEST(BlockingPolicyTest, AfterThreeEnginesNoneIsTriedAndTheyAreNamed) {
  BlockingPolicy policy;
  for (const char* engine : {"eng22", "algorithm 1", "eng47"}) {
    EXPECT_EQ(policy.Attempts(engine, false), 2);
    EXPECT_EQ(policy.DisabledBy(), "");
    policy.Took(engine, /*blocked=*/false);
  }
  EXPECT_EQ(policy.Attempts("eng63", false), 0);
  EXPECT_EQ(policy.DisabledBy(), "algorithm 1, eng22, eng47");
}

TEST(BlockingPolicyTest, AnEngineThatWorkedIsAProofThatTheyWork) {
  BlockingPolicy policy;
  policy.Took("eng1", /*blocked=*/true);
  for (const char* engine : {"eng1", "eng2", "eng3", "eng4", "eng5"}) {
    policy.Took(engine, /*blocked=*/false);
    policy.Took(engine, /*blocked=*/false);
  }
  EXPECT_EQ(policy.DisabledBy(), "");
  EXPECT_EQ(policy.Attempts("eng1", false), 2);
  EXPECT_EQ(policy.Attempts("eng2", false), 0);
  EXPECT_EQ(policy.Attempts("eng6", false), 2);
}

}  // namespace
}  // namespace convtune::worker::timing
