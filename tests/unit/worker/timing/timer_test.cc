#include "server/worker/timing/timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/timing/fake_timed_stream.h"

namespace convtune::worker::timing {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

class TimerTest : public testing::Test {
 protected:
  TimerTest() {
    work_.launch = [this](int copy) { return stream_.Note(absl::StrCat("launch ", copy)); };
    work_.inputs = {{nullptr, 640}};
  }

  FakeTimedStream stream_;
  TimedWork work_;
};

TEST_F(TimerTest, QueuesEverythingBehindABlockingKernelThatWaitsForTheFlush) {
  ASSERT_TRUE(TakeSample(work_, &stream_).ok());
  EXPECT_THAT(stream_.calls,
              ElementsAre("wait", "flush 640", "block", "stamp 0", "read 640", "event 0",
                          "launch 0", "event 1", "stamp 1", "release", "wait"));
  EXPECT_FALSE(stream_.waited_while_blocked);
}

TEST_F(TimerTest, ColdReadsNoInput) {
  work_.cache_state = CacheState::kCold;
  ASSERT_TRUE(TakeSample(work_, &stream_).ok());
  EXPECT_THAT(stream_.calls, ElementsAre("wait", "flush 0", "block", "stamp 0", "event 0",
                                         "launch 0", "event 1", "stamp 1", "release", "wait"));
}

TEST_F(TimerTest, HotRunsOnceBeforeAndFlushesNothing) {
  work_.cache_state = CacheState::kHot;
  ASSERT_TRUE(TakeSample(work_, &stream_).ok());
  EXPECT_THAT(stream_.calls, ElementsAre("wait", "block", "launch 0", "stamp 0", "event 0",
                                         "launch 0", "event 1", "stamp 1", "release", "wait"));
}

TEST_F(TimerTest, HotRunsAllOnOneCopy) {
  work_.cache_state = CacheState::kHot;
  work_.expected.gpu_us = 25;
  work_.copies = 2;
  work_.inputs = {{nullptr, 640}, {nullptr, 641}};
  ASSERT_TRUE(TakeSample(work_, &stream_).ok());
  EXPECT_THAT(stream_.calls, Contains("launch 0").Times(3));
  EXPECT_THAT(stream_.calls, Not(Contains("launch 1")));
}

TEST_F(TimerTest, RunsOnDifferentCopiesShareAFlush) {
  work_.expected.gpu_us = 17;  // three runs
  work_.copies = 2;
  work_.inputs = {{nullptr, 640}, {nullptr, 641}};
  ASSERT_TRUE(TakeSample(work_, &stream_).ok());
  EXPECT_THAT(stream_.calls, ElementsAre("wait", "flush 640", "block", "stamp 0", "read 640",
                                         "event 0", "launch 0", "event 1", "read 641", "event 2",
                                         "launch 1", "event 3", "flush 640", "read 640", "event 4",
                                         "launch 0", "event 5", "stamp 1", "release", "wait"));
}

TEST_F(TimerTest, WithoutABlockingKernelEachRunHasAFlush) {
  work_.expected.gpu_us = 25;  // two runs
  work_.copies = 2;
  work_.inputs = {{nullptr, 640}, {nullptr, 641}};
  work_.block_attempts = 0;
  ASSERT_TRUE(TakeSample(work_, &stream_).ok());
  EXPECT_THAT(stream_.calls, ElementsAre("wait", "flush 640", "stamp 0", "read 640", "event 0",
                                         "launch 0", "event 1", "flush 640", "read 640", "event 2",
                                         "launch 0", "event 3", "stamp 1", "wait"));
}

TEST_F(TimerTest, GivesTimeAndClock) {
  const absl::StatusOr<TimedRun> run = TakeSample(work_, &stream_);
  EXPECT_DOUBLE_EQ(run->gpu_us, 100);
  EXPECT_DOUBLE_EQ(run->sm_clock_mhz, 1500);
  EXPECT_EQ(run->stamps[0].timer_ns, 1'000'000U);
  EXPECT_EQ(run->stamps[1].cycles, 151'000U);
  EXPECT_TRUE(run->blocked);
}

TEST_F(TimerTest, AShortCandidateRunsSeveralTimesWithTheMeanAsSample) {
  work_.expected.gpu_us = 25;
  const absl::StatusOr<TimedRun> run = TakeSample(work_, &stream_);
  EXPECT_DOUBLE_EQ(run->gpu_us, 101);  // 100 and 102
  EXPECT_EQ(run->runs, 2);
  EXPECT_THAT(stream_.calls, Contains("flush 640").Times(2));
  EXPECT_THAT(stream_.calls, Contains("launch 0").Times(2));
  EXPECT_THAT(stream_.calls, Contains("block").Times(1));
}

TEST_F(TimerTest, HostTimeIsThatOfTheLaunchAlone) {
  work_.launch = [](int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return absl::OkStatus();
  };
  EXPECT_GE(TakeSample(work_, &stream_)->host_us, 2000);
}

TEST_F(TimerTest, ABlockingKernelThatGaveUpSpoilsItsSample) {
  stream_.give_ups = {true};
  const absl::StatusOr<TimedRun> run = TakeSample(work_, &stream_);
  EXPECT_TRUE(run->blocked);
  EXPECT_EQ(run->gave_up, 1);
  EXPECT_THAT(stream_.calls, Contains("launch 0").Times(2));
}

TEST_F(TimerTest, NoMoreAttemptsAreTriedThanAskedFor) {
  stream_.give_ups = {true, true};
  work_.block_attempts = 1;
  const absl::StatusOr<TimedRun> run = TakeSample(work_, &stream_);
  EXPECT_FALSE(run->blocked);
  EXPECT_EQ(run->gave_up, 1);
  EXPECT_THAT(stream_.calls, Contains("block").Times(1));
}

TEST_F(TimerTest, AfterTwoItIsTimedWithoutABlockingKernel) {
  stream_.give_ups = {true, true};
  const absl::StatusOr<TimedRun> run = TakeSample(work_, &stream_);
  EXPECT_FALSE(run->blocked);
  EXPECT_DOUBLE_EQ(run->gpu_us, 100);
  EXPECT_EQ(run->sm_clock_mhz, 0);
  EXPECT_THAT(stream_.calls, Contains("block").Times(2));
  EXPECT_THAT(stream_.calls, Contains("launch 0").Times(3));
}

TEST_F(TimerTest, WorkThatMustNotBeBlockedIsNot) {
  work_.block_attempts = 0;
  EXPECT_FALSE(TakeSample(work_, &stream_)->blocked);
  EXPECT_THAT(stream_.calls, Not(Contains("block")));
}

TEST_F(TimerTest, AFailedLaunchReleasesTheStreamAndWaits) {
  work_.launch = [](int) { return absl::UnimplementedError("not on a Monday"); };
  EXPECT_EQ(TakeSample(work_, &stream_).status(), absl::UnimplementedError("not on a Monday"));
  EXPECT_FALSE(stream_.blocked);
  EXPECT_EQ(stream_.calls.back(), "wait");
}

TEST_F(TimerTest, AFailureOfTheWorkIsTheError) {
  stream_.wait_status = absl::InternalError("an illegal address");
  EXPECT_EQ(TakeSample(work_, &stream_).status(), absl::InternalError("an illegal address"));
}

TEST_F(TimerTest, ARunThatTookNoTimeIsNoSample) {
  for (const double us : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    stream_.calls.clear();
    stream_.elapsed_us = us;
    EXPECT_FALSE(TakeSample(work_, &stream_).ok()) << us;
    EXPECT_THAT(stream_.calls, Contains("launch 0").Times(3)) << us;
  }
}

}  // namespace
}  // namespace convtune::worker::timing
