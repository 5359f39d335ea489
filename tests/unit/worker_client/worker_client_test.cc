// How long a worker that starts is waited for.
#include "proto/worker_client/worker_client.h"
#include "proto/base/clock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace convtune {
namespace {

using ::testing::HasSubstr;

SteadyTime At(int64_t seconds) {
  static const SteadyTime start = SteadyTime::Now();
  return start + absl::Seconds(seconds);
}

TEST(StartTimeoutTest, CountsFromTheLastSignOfLife) {
  StartTimeout timeout({absl::Seconds(60), absl::Minutes(5)}, At(0));
  EXPECT_EQ(timeout.WhyOver(7, At(50)), "");
  EXPECT_EQ(timeout.WhyOver(7, At(109)), "");
  EXPECT_EQ(timeout.WhyOver(7, At(110)), "it gave no sign of life for 1m");
}

TEST(StartTimeoutTest, IsNotForEver) {
  StartTimeout timeout({absl::Seconds(60), absl::Minutes(5)}, At(0));
  for (int second = 0; second < 1000; ++second) {
    EXPECT_EQ(timeout.WhyOver(static_cast<uint64_t>(second), At(second)),
              second < 300 ? "" : "it did not start within 5m");
  }
}

TEST(WorkDoneTest, GrowsInAProcessThatWorksAndIsZeroWhereThereIsNone) {
  const uint64_t before = WorkDone(getpid());
  EXPECT_GT(before, 0U);
  uint64_t after = before;
  for (const SteadyTime end = SteadyTime::Now() + absl::Minutes(1); after == before;) {
    ASSERT_LT(SteadyTime::Now(), end);
    after = WorkDone(getpid());
  }
  EXPECT_GT(after, before);
  EXPECT_EQ(WorkDone(0), 0U);
}

TEST(WorkDoneTest, StandsStillInAProcessThatWaits) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) pause();
  }
  uint64_t work = WorkDone(child);
  int same = 0;
  for (int look = 0; look < 3000 && same < 10; ++look) {
    absl::SleepFor(absl::Milliseconds(10));
    const uint64_t now = WorkDone(child);
    same = now == work ? same + 1 : 0;
    work = now;
  }
  EXPECT_EQ(same, 10);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

const StartLimits kLong = {absl::Minutes(5), absl::Minutes(5)};

class WorkerStartTest : public ::testing::Test {
 protected:
  absl::Status Start(const std::string& script, const StartLimits& limits) {
    const auto cancel = CancelToken::Create();
    WorkerClient::Options options;
    options.worker_argv = {CONVTUNE_FAKE_WORKER, "--environment", kEnvironment, "--script", script};
    options.environment_text = kEnvironment;
    options.hang_timeout = hang_timeout_;
    options.cancel = cancel->get();
    options.start = limits;
    return WorkerClient::Start(std::move(options)).status();
  }

  absl::Duration hang_timeout_ = absl::Minutes(5);
  static constexpr char kEnvironment[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";
};

TEST_F(WorkerStartTest, OneThatHangsIsGivenUp) {
  const absl::Status status =
      Start("fault=hang;where=start", {absl::Milliseconds(500), absl::Minutes(5)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("the worker does not start, at \"load the worker's kernels\": it gave no sign "
                "of life for 500ms"));
}

TEST_F(WorkerStartTest, OneThatWorksIsWaitedForBeyondThat) {
  EXPECT_EQ(Start("start_work_ms=4000", {absl::Seconds(2), absl::Minutes(5)}), absl::OkStatus());
}

TEST_F(WorkerStartTest, ButNotForEver) {
  const absl::Status status =
      Start("start_work_ms=600000", {absl::Minutes(5), absl::Milliseconds(500)});
  EXPECT_THAT(std::string(status.message()), HasSubstr("it did not start within 500ms"));
}

TEST_F(WorkerStartTest, OneThatDiesNamesTheStep) {
  const absl::Status status = Start("fault=segv;where=start", kLong);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the worker does not start, at \"load the worker's kernels\": the worker "
                        "died: signal 11"));
}

TEST_F(WorkerStartTest, TheStepThatLoadsCodeIsWaitedForWhileItWorks) {
  hang_timeout_ = absl::Seconds(1);
  EXPECT_EQ(Start("self_check=0;fault=busy;slow_ms=3000;where=self_check;index=5", kLong),
            absl::OkStatus());
  // Another step loads nothing.
  const absl::Status clock =
      Start("self_check=0;fault=busy;slow_ms=3000;where=self_check;index=2", kLong);
  EXPECT_THAT(std::string(clock.message()),
              HasSubstr("in its self-check, at clock: hung: no sign of life for 1s"));
  const absl::Status hung = Start("self_check=0;fault=hang;where=self_check;index=5", kLong);
  EXPECT_THAT(std::string(hung.message()),
              HasSubstr("in its self-check, at captures: hung: it gave "
                        "no sign of life for 1s"));
}

TEST_F(WorkerStartTest, OneWhoseSelfCheckCannotBeReadIsLost) {
  EXPECT_EQ(Start("self_check=0", kLong), absl::OkStatus());
  const absl::Status status = Start("self_check=0;instrument=hammer", kLong);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("unreadable self-check"));
}

}  // namespace
}  // namespace convtune
