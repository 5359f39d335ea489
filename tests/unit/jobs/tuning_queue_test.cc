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
  Subscriber Count() {
    return {[this](const WorkResult&) { ++done_; }, nullptr};
  }
  uint64_t Add(int n, Priority priority = Priority::kBackground, WorkKind kind = WorkKind::kTune) {
    return queue_.Submit(Spec(n, kind), priority, Count(), kNeeded);
  }
  std::shared_ptr<WorkItem> Take() { return queue_.Take(absl::ZeroDuration(), token_.get()); }
  int64_t BatchOf(const WorkItem& item) { return item.spec.problem.x_dims()[0]; }

  int done_ = 0;  // subscribers that were told of an end
  TuningQueue queue_;
  std::unique_ptr<CancelToken> token_ = CancelToken::Create().value();
};

TEST_F(TuningQueueTest, ManySubscribersAreOneItem) {
  for (int i = 0; i < 1000; ++i) Add(1);
  const auto item = Take();
  ASSERT_NE(item, nullptr);
  Add(1);
  EXPECT_EQ(Take(), nullptr);
  queue_.Finish(item, {});
  EXPECT_EQ(done_, 1001);
}

TEST_F(TuningQueueTest, WorkNoLongerNeededIsNotAdded) {
  EXPECT_EQ(queue_.Submit(Spec(1), Priority::kBackground, Count(), [] { return false; }), 0U);
  EXPECT_EQ(Take(), nullptr);
}

TEST_F(TuningQueueTest, WhoIsWaitedForComesFirst) {
  Add(1);
  Add(2, Priority::kInteractive);
  Add(3);
  EXPECT_EQ(BatchOf(*Take()), 2);
  EXPECT_EQ(BatchOf(*Take()), 1);
  EXPECT_EQ(BatchOf(*Take()), 3);
}

TEST_F(TuningQueueTest, TheDaemonsOwnWorkComesLast) {
  Add(1, Priority::kIdle);
  Add(2);
  EXPECT_EQ(BatchOf(*Take()), 2);
  EXPECT_EQ(BatchOf(*Take()), 1);
}

TEST_F(TuningQueueTest, IsIdleWhileNothingIsQueuedAndNothingRuns) {
  EXPECT_TRUE(queue_.idle());
  Add(1);
  EXPECT_FALSE(queue_.idle());
  const auto item = Take();
  EXPECT_FALSE(queue_.idle());
  queue_.Finish(item, {});
  EXPECT_TRUE(queue_.idle());
}

TEST_F(TuningQueueTest, JoiningRaisesThePriority) {
  Add(1);
  Add(2);
  Add(2, Priority::kInteractive);
  EXPECT_EQ(BatchOf(*Take()), 2);
}

TEST_F(TuningQueueTest, HeuristicJoinsAQueuedTuning) {
  Add(1);
  Add(1, Priority::kInteractive, WorkKind::kFirstConfigs);
  EXPECT_EQ(queue_.depth(), 1);
}

TEST_F(TuningQueueTest, TuningDoesNotJoinAHeuristic) {
  Add(1, Priority::kInteractive, WorkKind::kFirstConfigs);
  Add(1);
  EXPECT_EQ(queue_.depth(), 2);
}

TEST_F(TuningQueueTest, LargerBudgetDoesNotJoinASmallerOne) {
  WorkSpec small = Spec(1);
  small.options.memory_budget_bytes = 1024;
  queue_.Submit(small, Priority::kBackground, Count(), kNeeded);
  Add(1);
  EXPECT_EQ(queue_.depth(), 2);
  queue_.Submit(small, Priority::kBackground, Count(), kNeeded);
  EXPECT_EQ(queue_.depth(), 2);
}

TEST_F(TuningQueueTest, QueuedWorkThatNobodyWantsIsDropped) {
  const uint64_t first = Add(1);
  const uint64_t second = Add(1);
  queue_.Unsubscribe(first);
  EXPECT_EQ(queue_.depth(), 1);
  queue_.Unsubscribe(second);
  EXPECT_EQ(queue_.depth(), 0);
  EXPECT_EQ(done_, 0);
}

TEST_F(TuningQueueTest, RunningWorkThatNobodyWantsIsCancelled) {
  const uint64_t number = Add(1);
  const auto item = Take();
  EXPECT_FALSE(token_->cancelled());
  queue_.Unsubscribe(number);
  EXPECT_TRUE(token_->cancelled());
}

TEST_F(TuningQueueTest, WorkHasThePriorityOfThoseWhoStillWait) {
  const uint64_t live = Add(1, Priority::kInteractive);
  Add(1, Priority::kIdle);
  Add(2);
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
  Add(2, Priority::kIdle);  // one who waits without an end
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
  const uint64_t number = Add(1);
  const auto item = Take();
  queue_.Unsubscribe(number);
  Add(1);
  queue_.Finish(item, {absl::CancelledError("")});
  EXPECT_EQ(done_, 0);
  const auto next = Take();
  ASSERT_NE(next, nullptr);
  EXPECT_FALSE(token_->cancelled());
  queue_.Finish(next, {});
  EXPECT_EQ(done_, 1);
}

TEST_F(TuningQueueTest, ShutEndsWhatIsQueuedAndRefusesMore) {
  Add(1);
  queue_.Shut();
  EXPECT_EQ(done_, 1);
  Add(2);
  EXPECT_EQ(done_, 2);
  EXPECT_EQ(Take(), nullptr);
}

TEST_F(TuningQueueTest, WorkPutBackIsTakenByAnother) {
  Add(1);
  const auto item = Take();
  queue_.PutBack(item);
  EXPECT_EQ(done_, 0);
  EXPECT_EQ(Take(), item);
}

TEST_F(TuningQueueTest, WorkPutBackThatNobodyWantsIsDropped) {
  const uint64_t number = Add(1);
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
