#include "server/worker/cudnn/cudnn_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/worker/timing/timer.h"
#include "tests/unit/worker/timing/fake_timed_stream.h"

namespace convtune::worker::cudnn {
namespace {

using testing::ElementsAre;

// A GPU whose runtime reports what failed before with the next launch.
class StaleErrorsTest : public testing::Test {
 protected:
  absl::Status Launch(const std::string& who) {
    calls_.push_back(who);
    return std::exchange(stale_, absl::OkStatus());
  }
  absl::Status RefuseCapture() {
    calls_.push_back("capture");
    stale_ = absl::InternalError("stale");
    return absl::FailedPreconditionError("not permitted while a stream is captured");
  }
  std::function<void()> clear() {
    return [this] { calls_.push_back("clear"); };
  }

  absl::Status stale_;
  std::vector<std::string> calls_;
  int retried_ = 0;
};

TEST_F(StaleErrorsTest, ARefusedCaptureLeavesNothingToTheNextCandidate) {
  const absl::Status captured = OrThrowAway(
      RefuseCapture(), [this] { return Launch("a"); }, clear());
  EXPECT_EQ(captured.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Launch("stock").ok());
  EXPECT_THAT(calls_, ElementsAre("capture", "clear", "a", "clear", "stock"));
}

TEST_F(StaleErrorsTest, ACaptureThatWorksLaunchesNothing) {
  EXPECT_TRUE(OrThrowAway(
                  absl::OkStatus(), [this] { return Launch("a"); }, clear())
                  .ok());
  EXPECT_THAT(calls_, ElementsAre());
}

TEST_F(StaleErrorsTest, AFirstFailureOfASampleIsTriedOnceMore) {
  timing::FakeTimedStream stream;
  timing::TimedWork work;
  work.launch = [this](int) { return Launch("a"); };
  stale_ = absl::InternalError("stale");
  const absl::StatusOr<TimedRun> run =
      TryTwice([&] { return timing::TakeSample(work, &stream); }, clear(), &retried_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_DOUBLE_EQ(run->gpu_us, 100);
  EXPECT_THAT(calls_, ElementsAre("a", "clear", "a"));
  EXPECT_FALSE(stream.blocked);
  EXPECT_EQ(retried_, 1);
}

TEST_F(StaleErrorsTest, WhatFailsTwiceHasFailed) {
  int attempts = 0;
  const absl::StatusOr<int> result = TryTwice(
      [&attempts]() -> absl::StatusOr<int> {
        return absl::InternalError(std::to_string(++attempts));
      },
      clear(), &retried_);
  EXPECT_EQ(result.status().message(), "2");
  EXPECT_EQ(attempts, 2);
  EXPECT_THAT(calls_, ElementsAre("clear"));
  EXPECT_EQ(retried_, 1);
}

TEST_F(StaleErrorsTest, EachRunHasARetryOfItsOwn) {
  int attempts = 0;
  const auto every_second_fails = [&attempts]() -> absl::StatusOr<int> {
    if (++attempts % 2 == 1) return absl::InternalError("once");
    return attempts;
  };
  for (int run = 1; run <= 3; ++run) {
    EXPECT_TRUE(TryTwice(every_second_fails, clear(), &retried_).ok());
    EXPECT_EQ(retried_, run);
  }
}

TEST_F(StaleErrorsTest, AFailedExecuteLeavesNothingToTheNextCandidate) {
  const std::function<absl::StatusOr<int>()> execute = [this]() -> absl::StatusOr<int> {
    calls_.push_back("execute");
    stale_ = absl::InternalError("stale");
    return absl::InternalError("failed");
  };
  const absl::StatusOr<int> result = OrThrowAway(
      TryTwice(execute, clear(), &retried_), [this] { return Launch("sound"); }, clear());
  EXPECT_EQ(result.status().message(), "failed");
  EXPECT_TRUE(Launch("next").ok());
  EXPECT_THAT(calls_,
              ElementsAre("execute", "clear", "execute", "clear", "sound", "clear", "next"));
}

TEST_F(StaleErrorsTest, WhatWorksIsTriedOnce) {
  int attempts = 0;
  EXPECT_EQ(
      *OrThrowAway(
          TryTwice([&attempts]() -> absl::StatusOr<int> { return ++attempts; }, clear(), &retried_),
          [this] { return Launch("sound"); }, clear()),
      1);
  EXPECT_THAT(calls_, ElementsAre());
  EXPECT_EQ(retried_, 0);
}

}  // namespace
}  // namespace convtune::worker::cudnn
