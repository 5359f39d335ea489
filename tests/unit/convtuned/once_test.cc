#include "server/convtuned/once.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <fstream>

#include "tests/unit/rpc/fake_tuner.h"
#include "tests/unit/temp_dir.h"

namespace convtune::convtuned {
namespace {

class OnceTest : public testing::Test {
 protected:
  OnceTest() { tuner_.answer_at_once = true; }

  int Run(const std::string& list) {
    std::ofstream(dir_.path("list")) << list;
    Flags flags;
    flags.once = true;
    flags.files = {dir_.path("list")};
    flags.on_miss = jobs::OnMiss::kHeuristic;
    flags.time_budget = absl::Seconds(2);
    flags.publish.wanted_memory_budget_bytes = 1 << 30;
    flags.publish.wanted_wait_idle = absl::Minutes(5);
    return RunOnce(&tuner_, flags, &signals_);
  }

  TempDir dir_;
  rpc::FakeTuner tuner_;
  StopSignals signals_;
};

TEST_F(OnceTest, EveryProblemAnsweredIsSuccess) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\nfwd,x=1x2x3x3,w=4x2x1x1,f16\n"), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "nvidia-h200: 2 problems: 2 had an answer, 0 were tuned, 0 have none\n"
            "the model is warm\n");
  const auto request = tuner_.last_request();
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->environment, "nvidia-h200");
  EXPECT_EQ(request->demand.on_miss, jobs::OnMiss::kHeuristic);
  EXPECT_EQ(request->demand.options.time_budget, absl::Seconds(2));
  EXPECT_EQ(request->demand.options.memory_budget_bytes, 1 << 30);
  EXPECT_EQ(request->demand.options.wait_idle, absl::Minutes(5));
}

TEST_F(OnceTest, DoubledProblemsAreAskedOnce) {
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\nfwd,x=1x2x3x3,w=4x2x1x1\n"), 0);
  EXPECT_EQ(tuner_.last_request()->problems.size(), 1u);
}

TEST_F(OnceTest, AMissFails) { EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x3x3\n"), 1); }

TEST_F(OnceTest, WhatCouldNotBeWrittenFails) {
  tuner_.persisted = false;
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\n"), 1);
}

TEST_F(OnceTest, AGuessThatIsKeptInMemoryOnPurposeIsAnswered) {
  tuner_.persisted = false;
  tuner_.stands_in = true;
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\n"), 0);
}

TEST_F(OnceTest, ARowThatCannotBeReadFailsAfterTheRest) {
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\nfwd,wat=1\n"), 1);
  EXPECT_TRUE(tuner_.last_request().has_value());
}

TEST_F(OnceTest, AMissingFileFails) {
  Flags flags;
  flags.files = {dir_.path("none")};
  EXPECT_EQ(RunOnce(&tuner_, flags, &signals_), 1);
}

TEST_F(OnceTest, TunersErrorFails) {
  tuner_.failure = absl::FailedPreconditionError("no environment");
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\n"), 1);
}

TEST_F(OnceTest, StopSignalAbandonsAndFails) {
  tuner_.answer_at_once = false;
  pthread_kill(pthread_self(), SIGTERM);  // blocked by signals_, so it waits there
  EXPECT_EQ(Run("fwd,x=1x2x3x3,w=4x2x1x1\n"), 1);
  EXPECT_EQ(tuner_.abandoned(), 1);
}

}  // namespace
}  // namespace convtune::convtuned
