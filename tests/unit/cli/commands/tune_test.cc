#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::TuningJob Job(v1::JobState state, int succeeded, int failed, int total) {
  v1::TuningJob job;
  job.set_name("jobs/1");
  job.set_state(state);
  job.set_problem_count(total);
  job.set_succeeded_count(succeeded);
  job.set_failed_count(failed);
  job.set_persisted(true);
  return job;
}

class TuneTest : public DaemonTest {
 protected:
  TuneTest() {
    daemon_.states = {Job(v1::JOB_STATE_RUNNING, 1, 0, 2), Job(v1::JOB_STATE_SUCCEEDED, 2, 0, 2)};
    daemon_.states[0].set_current_problem(ProblemText(8));
    daemon_.states[0].set_current_candidates_done(3);
    daemon_.states[0].set_current_candidates_total(41);
  }

  RunResult Tune(std::vector<std::string> arguments, bool terminal = false) {
    arguments.insert(arguments.begin(), {"tune", ProblemText(8)});
    return Run(arguments, {.terminal = terminal});
  }
};

TEST_F(TuneTest, PrintsTheAnswersAfterTheJob) {
  const RunResult result = Tune({});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("graph:eng34,k2=5"));
  EXPECT_THAT(result.err, HasSubstr("jobs/1: 2 of 2 problems"));
}

TEST_F(TuneTest, TheBarIsOnTerminalsOnly) {
  EXPECT_THAT(Tune({}, true).err, HasSubstr("[##########----------] 1/2"));
  EXPECT_THAT(Tune({}, false).err, Not(HasSubstr("[#")));
}

TEST_F(TuneTest, AFailedJobEndsWithOneAndSaysWhy) {
  daemon_.states = {Job(v1::JOB_STATE_FAILED, 0, 1, 1)};
  v1::TuningFailure* failure = daemon_.states[0].add_failures();
  failure->set_problem_text("fwd");
  failure->set_reason("no candidate ran");
  daemon_.misses["fwd"] = v1::MISS_REASON_NOT_FOUND;
  const RunResult result = Tune({});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("fwd: no candidate ran"));
}

TEST_F(TuneTest, AResultThatIsNotOnDiskIsSaid) {
  daemon_.states.back().set_persisted(false);
  const RunResult result = Tune({});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("is not on disk"));
}

TEST_F(TuneTest, AnAnswerThatIsNotOnDiskIsSaid) {
  const auto get = [this] { return Run({"get", ProblemText(8)}); };
  EXPECT_EQ(get().code, 0);
  daemon_.persisted = false;
  const RunResult result = get();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("error: 1 result is not on disk"));
  EXPECT_THAT(result.out, HasSubstr("graph:eng34,k2=5"));
  daemon_.misses["fwd"] = v1::MISS_REASON_NOT_FOUND;
  EXPECT_EQ(get().code, 3);
}

TEST_F(TuneTest, OptionsReachTheDaemon) {
  Tune({"--budget", "1500ms", "--memory-budget", "2GiB", "--max-candidates", "7", "--search",
        "exhaustive", "--force", "--api", "legacy", "--all-timings"});
  const v1::CreateTuningJobRequest request = daemon_.last_create();
  EXPECT_EQ(request.options().time_budget().seconds(), 1);
  EXPECT_EQ(request.options().time_budget().nanos(), 500'000'000);
  EXPECT_EQ(request.options().memory_budget_bytes(), int64_t{2} << 30);
  EXPECT_EQ(request.options().max_candidates(), 7);
  EXPECT_EQ(request.options().search(), v1::SEARCH_EXHAUSTIVE);
  EXPECT_EQ(request.options().api(), v1::API_LEGACY);
  EXPECT_TRUE(request.options().all_timings());
  EXPECT_TRUE(request.force());
  EXPECT_EQ(request.priority(), v1::PRIORITY_INTERACTIVE);
}

TEST_F(TuneTest, ADaemonThatStopsIsWaitedForAndAskedAgain) {
  daemon_.lost_watches = 2;
  const RunResult result = Tune({});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(daemon_.lost_watches, 0);
  EXPECT_THAT(result.err, HasSubstr("waiting for it to start again"));
  EXPECT_THAT(result.err, HasSubstr("jobs/1: 2 of 2 problems"));
}

TEST_F(TuneTest, ADaemonThatDoesNotComeBackEndsWithFour) {
  daemon_.states = {Job(v1::JOB_STATE_RUNNING, 0, 0, 2)};
  daemon_.lost_watches = 1'000'000;
  const RunResult result = Tune({"--timeout", "500ms"});
  EXPECT_EQ(result.code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: "));
}

TEST_F(TuneTest, CtrlCAndSigtermCancelTheJobAndSaySo) {
  for (const int number : {SIGINT, SIGTERM}) {
    daemon_.on_watch = [number] { kill(getpid(), number); };
    const RunResult result = Tune({});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("jobs/1 was cancelled: 1 of 2 problems"));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace convtune::cli::commands
