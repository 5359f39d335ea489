#include "server/jobs/tuning_queue.h"
#include "proto/base/clock.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/candidates.h"

namespace convtune::jobs {
namespace {

const auto kNeeded = [] { return true; };

class TuningQueueTest : public ::testing::Test {
 protected:
  static WorkSpec Spec(int n, WorkKind kind = WorkKind::kTune) {
    const ConvProblem problem =
        ConvProblem::Parse("fwd,x=" + std::to_string(n) + "x8x8x8,w=8x8x3x3,f16").value();
    return {problem, {problem.ToText(), kH200}, kind, {}};
  }
  Subscriber Count(int* done) {
    return {[done](const WorkResult&) { ++*done; }, nullptr};
  }
  uint64_t Add(int n, int* done, Priority priority = Priority::kBackground,
               WorkKind kind = WorkKind::kTune) {
    return queue_.Submit(Spec(n, kind), priority, Count(done), kNeeded);
  }
  std::shared_ptr<WorkItem> Take() { return queue_.Take(absl::ZeroDuration(), token_.get()); }
  int64_t BatchOf(const WorkItem& item) { return item.spec.problem.x_dims()[0]; }

  TuningQueue queue_;
  std::unique_ptr<CancelToken> token_ = CancelToken::Create().value();
};

TEST_F(TuningQueueTest, ManySubscribersAreOneItem) {
  int done = 0;
  for (int i = 0; i < 1000; ++i) Add(1, &done);
  const auto item = Take();
  ASSERT_NE(item, nullptr);
  Add(1, &done);
  EXPECT_EQ(Take(), nullptr);
  queue_.Finish(item, {});
  EXPECT_EQ(done, 1001);
}

TEST_F(TuningQueueTest, WorkNoLongerNeededIsNotAdded) {
  int done = 0;
  EXPECT_EQ(queue_.Submit(Spec(1), Priority::kBackground, Count(&done), [] { return false; }), 0U);
  EXPECT_EQ(Take(), nullptr);
}

TEST_F(TuningQueueTest, WhoIsWaitedForComesFirst) {
  int done = 0;
  Add(1, &done);
  Add(2, &done, Priority::kInteractive);
  Add(3, &done);
  EXPECT_EQ(BatchOf(*Take()), 2);
  EXPECT_EQ(BatchOf(*Take()), 1);
  EXPECT_EQ(BatchOf(*Take()), 3);
}

TEST_F(TuningQueueTest, TheDaemonsOwnWorkComesLast) {
  int done = 0;
  Add(1, &done, Priority::kIdle);
  Add(2, &done);
  EXPECT_EQ(BatchOf(*Take()), 2);
  EXPECT_EQ(BatchOf(*Take()), 1);
}

TEST_F(TuningQueueTest, IsIdleWhileNothingIsQueuedAndNothingRuns) {
  int done = 0;
  EXPECT_TRUE(queue_.idle());
  Add(1, &done);
  EXPECT_FALSE(queue_.idle());
  const auto item = Take();
  EXPECT_FALSE(queue_.idle());
  queue_.Finish(item, {});
  EXPECT_TRUE(queue_.idle());
}

TEST_F(TuningQueueTest, JoiningRaisesThePriority) {
  int done = 0;
  Add(1, &done);
  Add(2, &done);
  Add(2, &done, Priority::kInteractive);
  EXPECT_EQ(BatchOf(*Take()), 2);
}

TEST_F(TuningQueueTest, HeuristicJoinsAQueuedTuning) {
  int done = 0;
  Add(1, &done);
  Add(1, &done, Priority::kInteractive, WorkKind::kFirstConfigs);
  EXPECT_EQ(queue_.depth(), 1);
}

TEST_F(TuningQueueTest, TuningDoesNotJoinAHeuristic) {
  int done = 0;
  Add(1, &done, Priority::kInteractive, WorkKind::kFirstConfigs);
  Add(1, &done);
  EXPECT_EQ(queue_.depth(), 2);
}

TEST_F(TuningQueueTest, LargerBudgetDoesNotJoinASmallerOne) {
  int done = 0;
  WorkSpec small = Spec(1);
  small.options.memory_budget_bytes = 1024;
  queue_.Submit(small, Priority::kBackground, Count(&done), kNeeded);
  Add(1, &done);
  EXPECT_EQ(queue_.depth(), 2);
  queue_.Submit(small, Priority::kBackground, Count(&done), kNeeded);
  EXPECT_EQ(queue_.depth(), 2);
}

TEST_F(TuningQueueTest, QueuedWorkThatNobodyWantsIsDropped) {
  int done = 0;
  const uint64_t first = Add(1, &done);
  const uint64_t second = Add(1, &done);
  queue_.Unsubscribe(first);
  EXPECT_EQ(queue_.depth(), 1);
  queue_.Unsubscribe(second);
  EXPECT_EQ(queue_.depth(), 0);
  EXPECT_EQ(done, 0);
}

TEST_F(TuningQueueTest, RunningWorkThatNobodyWantsIsCancelled) {
  int done = 0;
  const uint64_t number = Add(1, &done);
  const auto item = Take();
  EXPECT_FALSE(token_->cancelled());
  queue_.Unsubscribe(number);
  EXPECT_TRUE(token_->cancelled());
}

TEST_F(TuningQueueTest, WorkHasThePriorityOfThoseWhoStillWait) {
  int done = 0;
  const uint64_t live = Add(1, &done, Priority::kInteractive);
  Add(1, &done, Priority::kIdle);
  Add(2, &done);
  queue_.Unsubscribe(live);
  EXPECT_EQ(BatchOf(*Take()), 2);
  EXPECT_EQ(BatchOf(*Take()), 1);
}

TEST_F(TuningQueueTest, WorkIsDroppedOnceNobodyWaitsAnyLonger) {
  std::vector<absl::Status> ends;
  const auto add = [&](int n, SteadyTime expires) {
    return queue_.Submit(Spec(n), Priority::kIdle,
                         {[&ends](const WorkResult& r) { ends.push_back(r.status); }, {}, expires},
                         kNeeded);
  };
  const SteadyTime past = SteadyTime::Now();
  add(1, past);
  add(2, past);
  add(3, SteadyTime::Now() + absl::Hours(1));
  int done = 0;
  Add(2, &done, Priority::kIdle);  // one who waits without an end
  // Others join the one that expires, which then waits as long as they would.
  add(4, past);
  EXPECT_EQ(add(4, SteadyTime::Now() + absl::Hours(1)), 0U);
  EXPECT_EQ(BatchOf(*Take()), 2);
  EXPECT_EQ(BatchOf(*Take()), 3);
  EXPECT_EQ(BatchOf(*Take()), 4);
  EXPECT_EQ(Take(), nullptr);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ends[0]));
}

TEST_F(TuningQueueTest, CancelledWorkIsNotJoined) {
  int done = 0;
  const uint64_t number = Add(1, &done);
  const auto item = Take();
  queue_.Unsubscribe(number);
  Add(1, &done);
  queue_.Finish(item, {absl::CancelledError("")});
  EXPECT_EQ(done, 0);
  const auto next = Take();
  ASSERT_NE(next, nullptr);
  EXPECT_FALSE(token_->cancelled());
  queue_.Finish(next, {});
  EXPECT_EQ(done, 1);
}

TEST_F(TuningQueueTest, ShutEndsWhatIsQueuedAndRefusesMore) {
  int done = 0;
  Add(1, &done);
  queue_.Shut();
  EXPECT_EQ(done, 1);
  Add(2, &done);
  EXPECT_EQ(done, 2);
  EXPECT_EQ(Take(), nullptr);
}

TEST_F(TuningQueueTest, WorkPutBackIsTakenByAnother) {
  int done = 0;
  Add(1, &done);
  const auto item = Take();
  queue_.PutBack(item);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(Take(), item);
}

TEST_F(TuningQueueTest, WorkPutBackThatNobodyWantsIsDropped) {
  int done = 0;
  const uint64_t number = Add(1, &done);
  const auto item = Take();
  queue_.Unsubscribe(number);
  queue_.PutBack(item);
  EXPECT_EQ(Take(), nullptr);
}

TEST_F(TuningQueueTest, ProgressReachesEverySubscriber) {
  int calls = 0;
  const auto count = [&calls](const WorkProgress& p) { calls += p.candidates_done; };
  for (int i = 0; i < 2; ++i) {
    queue_.Submit(Spec(1), Priority::kBackground, {[](const WorkResult&) {}, count}, kNeeded);
  }
  queue_.Report(Take(), {3, 5});
  EXPECT_EQ(calls, 6);
}

}  // namespace
}  // namespace convtune::jobs
