#include "server/worker/timing/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/fake_backend.h"

namespace convtune::worker::timing {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class MeasureTest : public testing::Test {
 protected:
  // Candidates with engines 1, 2, ...; their index is one less.
  absl::StatusOr<bool> Measure(int candidates, int rounds,
                               absl::Time deadline = absl::InfiniteFuture()) {
    while (static_cast<int>(backend_.candidates.size()) < candidates) {
      backend_.Add(static_cast<int64_t>(backend_.candidates.size()) + 1);
    }
    MeasurePlan plan;
    plan.rounds = rounds;
    plan.deadline = deadline;
    for (int i = 0; i < candidates; ++i) {
      plan.candidates.push_back({i, backend_.candidates[static_cast<size_t>(i)].candidate.id});
    }
    MeasureCallbacks callbacks;
    callbacks.on_touch = [this](int index) {
      events_.push_back(absl::StrCat("touch ", index));
      return absl::OkStatus();
    };
    callbacks.on_sample = [this](int index, int round, const absl::StatusOr<TimedRun>& run) {
      events_.push_back(
          absl::StrCat(run.ok() ? "sample " : "failure ", index, " of round ", round));
      return send_status_;
    };
    FakeProblem problem(&backend_);
    return RunRounds(&problem, plan, callbacks);
  }

  FakeBackend backend_;
  std::vector<std::string> events_;
  absl::Status send_status_;
};

TEST_F(MeasureTest, TheOrderRotatesFromRoundToRound) {
  EXPECT_FALSE(*Measure(3, 3));
  EXPECT_THAT(backend_.runs, ElementsAre(1, 2, 3,  //
                                         2, 3, 1,  //
                                         3, 1, 2));
}

TEST_F(MeasureTest, EachCandidateIsTouchedBeforeItsRuns) {
  EXPECT_FALSE(*Measure(2, 2));
  EXPECT_THAT(events_,
              ElementsAre("touch 0", "sample 0 of round 0", "touch 1", "sample 1 of round 0",
                          "sample 1 of round 1", "touch 0", "sample 0 of round 1"));
}

TEST_F(MeasureTest, OneThatFailsInARoundIsReportedAndLeftOut) {
  backend_.Add(1).runs_until_failure = 1;
  EXPECT_FALSE(*Measure(2, 3));
  EXPECT_THAT(backend_.runs, ElementsAre(1, 2, 2, 1, 2));
  EXPECT_THAT(events_, testing::Contains("failure 0 of round 1").Times(1));
}

TEST_F(MeasureTest, APassedDeadlineRunsNothing) {
  EXPECT_TRUE(*Measure(2, 1, absl::InfinitePast()));
  EXPECT_THAT(backend_.runs, IsEmpty());
}

TEST_F(MeasureTest, AFailedSendEndsIt) {
  send_status_ = absl::OutOfRangeError("gone");
  EXPECT_EQ(Measure(2, 5).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(backend_.runs, ElementsAre(1));
}

}  // namespace
}  // namespace convtune::worker::timing
