#include "server/jobs/job_table.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace convtune::jobs {
namespace {

class JobTableTest : public ::testing::Test {
 protected:
  std::string Create(int problems, int skipped = 0, const std::string& request_id = "") {
    return table_.Create("nvidia-h200", problems, skipped, request_id)->job.name();
  }
  v1::TuningJob Get(const std::string& name) { return table_.Get(name).value(); }
  bool WasInterrupted(const std::string& name) {
    bool was = false;
    EXPECT_TRUE(
        table_.Watch(name, [&](const v1::TuningJob&, bool interrupted) { was = interrupted; })
            .ok());
    return was;
  }

  void Submit(const std::string& name, int n, bool needed = true) {
    const ConvProblem problem =
        ConvProblem::Parse(absl::StrCat("fwd,x=", n, "x8x9x9,w=8x8x1x1")).value();
    table_.Submit(name, &queue_, {problem, {problem.ToText(), "nvidia-h200"}, WorkKind::kTune, {}},
                  Priority::kBackground, SteadyTime::InfiniteFuture(), [needed] { return needed; });
  }

  SystemClock clock_;
  TuningQueue queue_;
  std::unique_ptr<CancelToken> token_ = CancelToken::Create().value();
  JobTable table_{&clock_};
};

TEST_F(JobTableTest, NewJobIsQueued) {
  const v1::TuningJob job = Get(Create(2));
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.problem_count(), 2);
  EXPECT_FALSE(job.has_end_time());
}

TEST_F(JobTableTest, JobWithNothingToDoSucceedsAtOnce) {
  const v1::TuningJob job = Get(Create(2, 2));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.skipped_count(), 2);
  EXPECT_TRUE(job.has_end_time());
}

TEST_F(JobTableTest, SucceedsWhenEveryProblemHasAResult) {
  const std::string name = Create(2);
  table_.ProblemDone(name, "a", {absl::OkStatus(), true});
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_RUNNING);
  table_.ProblemDone(name, "b", {absl::OkStatus(), false});
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(Get(name).persisted());
}

TEST_F(JobTableTest, FailsWithTheReasonsWhenAProblemHasNone) {
  const std::string name = Create(2);
  table_.ProblemDone(name, "a", {absl::NotFoundError("no candidate ran")});
  table_.ProblemDone(name, "b", {});
  const v1::TuningJob job = Get(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  ASSERT_EQ(job.failures_size(), 1);
  EXPECT_EQ(job.failures(0).problem_text(), "a");
  EXPECT_EQ(job.failures(0).reason(), "no candidate ran");
  EXPECT_EQ(job.succeeded_count(), 1);
}

TEST_F(JobTableTest, KnownRequestIdGivesTheSameJob) {
  const std::string name = Create(1, 0, "id");
  const JobTable::Created again = table_.Create("nvidia-h200", 1, 0, "id").value();
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.job.name(), name);
  EXPECT_NE(Create(1, 0, "other"), name);
}

TEST_F(JobTableTest, KnownRequestIdOfAnotherRequestIsRefused) {
  const std::string name = table_.Create("nvidia-h200", 1, 0, "id", 7)->job.name();
  EXPECT_EQ(table_.Create("nvidia-h200", 1, 0, "id", 7)->job.name(), name);
  const absl::Status refused = table_.Create("nvidia-h200", 1, 0, "id", 8).status();
  EXPECT_TRUE(absl::IsAlreadyExists(refused));
  EXPECT_NE(refused.message().find(name), absl::string_view::npos) << refused;
}

TEST_F(JobTableTest, NumbersAreNotThoseOfADaemonBefore) {
  class Later : public Clock {
   public:
    absl::Time Now() const override { return absl::Now() + absl::Seconds(1); }
  };
  const Later later;
  JobTable next(&later);
  std::set<std::string> names;
  // Each look-up that enqueues its misses makes one.
  for (int i = 0; i < 20'000; ++i) names.insert(Create(1));
  EXPECT_EQ(names.count(next.Create("nvidia-h200", 1, 0, "")->job.name()), 0U);
}

TEST_F(JobTableTest, CancelDropsTheWorkThatNobodyElseWants) {
  const std::string name = Create(3);
  const std::string other = Create(1);
  for (const int n : {1, 2, 3}) Submit(name, n);
  Submit(other, 3);
  const auto taken = queue_.Take(absl::ZeroDuration(), token_.get());
  queue_.Finish(taken, {});
  EXPECT_EQ(Get(name).succeeded_count(), 1);
  EXPECT_EQ(table_.Cancel(name)->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(queue_.depth(), 1) << "the other job's";
  EXPECT_EQ(table_.Cancel(name)->state(), v1::JOB_STATE_CANCELLED);
  Submit(name, 4);
  EXPECT_EQ(queue_.depth(), 1) << "work for a job that has ended";
}

TEST_F(JobTableTest, WorkThatIsNotNeededIsSkippedAndEndsAJobWhoseOtherProblemsAreDone) {
  const std::string name = Create(2);
  table_.ProblemDone(name, "a", {});
  EXPECT_FALSE(HasEnded(Get(name)));
  Submit(name, 1, /*needed=*/false);
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get(name).skipped_count(), 1);
}

TEST_F(JobTableTest, OnlyTheDaemonsEndInterrupts) {
  const std::string drained = Create(2);
  table_.ProblemDone(drained, "a", {absl::CancelledError("draining")});
  EXPECT_EQ(Get(drained).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(WasInterrupted(drained));
  const std::string cancelled = Create(2);
  ASSERT_TRUE(table_.Cancel(cancelled).ok());
  EXPECT_FALSE(WasInterrupted(cancelled));
}

TEST_F(JobTableTest, CollectsAbandonedWorkInOneJobWithABound) {
  const std::string name = table_.Collect("nvidia-h200").value();
  EXPECT_TRUE(Get(name).abandoned());
  for (int i = 1; i < JobTable::kMaxAbandoned; ++i) {
    EXPECT_EQ(table_.Collect("nvidia-h200"), name);
  }
  EXPECT_EQ(table_.Collect("nvidia-h200"), std::nullopt);
  EXPECT_NE(table_.Collect("nvidia-a100"), name) << "each environment has its own";
  table_.ProblemDone(name, "a", {});
  EXPECT_EQ(table_.Collect("nvidia-h200"), name);
  EXPECT_EQ(Get(name).problem_count(), JobTable::kMaxAbandoned + 1);
  ASSERT_TRUE(table_.Cancel(name).ok());
  EXPECT_NE(table_.Collect("nvidia-h200"), name) << "one that has ended is not used again";
}

TEST_F(JobTableTest, AbandonedWorkThatIsKeptAlreadyDoesNotCount) {
  const std::string name = table_.Collect("nvidia-h200").value();
  table_.Collect("nvidia-h200");
  table_.ProblemDone(name, "a", {});
  EXPECT_FALSE(HasEnded(Get(name)));
  Submit(name, 1, /*needed=*/false);
  EXPECT_EQ(Get(name).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get(name).problem_count(), 1);
}

TEST_F(JobTableTest, EndedJobDoesNotChange) {
  const std::string name = Create(1);
  table_.ProblemDone(name, "a", {});
  EXPECT_EQ(table_.Cancel(name)->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobTableTest, KeepsTheLastThousandEnded) {
  const std::string running = Create(1);
  const std::string first = Create(1, 1, "id");
  for (size_t i = 0; i < JobTable::kKeptEnded; ++i) Create(1, 1);
  EXPECT_TRUE(absl::IsNotFound(table_.Get(first).status()));
  EXPECT_TRUE(table_.Get(running).ok());
  EXPECT_TRUE(table_.Create("nvidia-h200", 1, 1, "id")->is_new);
}

TEST_F(JobTableTest, ListsNewestFirst) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.insert(names.begin(), Create(1));
  std::vector<std::string> listed;
  for (const v1::TuningJob& job : table_.List()) listed.push_back(job.name());
  EXPECT_EQ(listed, names);
}

TEST_F(JobTableTest, BadNamesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Get("job1").status()));
  EXPECT_TRUE(absl::IsNotFound(table_.Get("jobs/99").status()));
}

TEST_F(JobTableTest, WatcherSeesTheStateAtOnceAndTheEndLast) {
  std::vector<v1::TuningJob> seen;
  const std::string name = Create(1);
  ASSERT_TRUE(
      table_.Watch(name, [&](const v1::TuningJob& job, bool) { seen.push_back(job); }).ok());
  EXPECT_EQ(seen.size(), 1U);
  table_.Progress(name, "a", {1, 4});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen.back().current_candidates_done(), 1);
  table_.ProblemDone(name, "a", {});
  EXPECT_EQ(seen.back().state(), v1::JOB_STATE_SUCCEEDED);
  for (size_t i = 0; i + 1 < seen.size(); ++i) EXPECT_FALSE(HasEnded(seen[i]));
}

TEST_F(JobTableTest, WatcherOfAnEndedJobIsCalledOnce) {
  int calls = 0;
  const std::string name = Create(1, 1);
  ASSERT_TRUE(table_.Watch(name, [&calls](const v1::TuningJob&, bool) { ++calls; }).ok());
  ASSERT_TRUE(table_.Cancel(name).ok());
  EXPECT_EQ(calls, 1);
}

TEST_F(JobTableTest, StoppedWatcherIsNotCalledAgain) {
  std::atomic<bool> stopped = false;
  std::atomic<bool> called_late = false;
  const std::string name = Create(2);
  const uint64_t token =
      table_.Watch(name, [&](const v1::TuningJob&, bool) { called_late = stopped.load(); }).value();
  std::thread device([&] {
    for (int i = 0; i < 1000; ++i) table_.Progress(name, "a", {i, 1000});
  });
  table_.StopWatching(token);
  stopped = true;
  device.join();
  table_.ProblemDone(name, "a", {});
  table_.ProblemDone(name, "b", {});
  EXPECT_FALSE(called_late);
}

TEST_F(JobTableTest, NobodyWatchesOnceItIsStopped) {
  const std::string name = Create(1);
  table_.Stop();
  EXPECT_TRUE(absl::IsUnavailable(table_.Watch(name, [](const v1::TuningJob&, bool) {}).status()));
}

}  // namespace
}  // namespace convtune::jobs
