#include "server/worker/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/fake_backend.h"

namespace convtune {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;

class PrepareTest : public testing::Test {
 protected:
  // Candidates with engines 1, 2, ...; their index is one less.
  void Add(int candidates) {
    for (int i = 0; i < candidates; ++i) {
      backend_.Add(i + 1);
    }
  }

  absl::StatusOr<bool> Prepare(PreparePlan plan) {
    for (size_t i = 0; i < backend_.candidates.size(); ++i) {
      plan.candidates.push_back({static_cast<int>(i), backend_.candidates[i].candidate.id});
    }
    PrepareCallbacks callbacks;
    callbacks.on_touch = [this](int index) {
      touched_.push_back(index);
      return touch_status_;
    };
    callbacks.on_prepared = [this](int index, const absl::StatusOr<PreparedCandidate>& /*result*/,
                                   absl::Duration build_time) {
      EXPECT_GE(build_time, absl::ZeroDuration());
      prepared_.push_back(index);
      return absl::OkStatus();
    };
    FakeProblem problem(&backend_);
    return PrepareAll(&problem, plan, callbacks);
  }

  FakeBackend backend_;
  std::vector<int> touched_;
  std::vector<int> prepared_;
  absl::Status touch_status_;
};

TEST_F(PrepareTest, OneLaneGoesByTheOrder) {
  Add(4);
  EXPECT_FALSE(*Prepare({}));
  EXPECT_THAT(touched_, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(prepared_, ElementsAre(0, 1, 2, 3));
}

TEST_F(PrepareTest, SeveralLanesPrepareEachCandidateOnce) {
  Add(500);
  PreparePlan plan;
  plan.lanes = 4;
  EXPECT_FALSE(*Prepare(plan));
  std::vector<int> all(500);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(touched_, all);
  EXPECT_THAT(prepared_, UnorderedElementsAreArray(all));
  int built = 0;
  for (size_t lane = 0; lane < 4; ++lane) {
    built += backend_.prepared_by[lane];
  }
  EXPECT_EQ(built, 500);
}

TEST_F(PrepareTest, LegacyAlgorithmsComeFirstAndOnLaneZero) {
  Add(1);
  for (int i = 0; i < 20; ++i) {
    backend_.Add(0).candidate.id = LegacyAlgorithm{i % 8, i / 8};
  }
  PreparePlan plan;
  plan.lanes = 4;
  EXPECT_FALSE(*Prepare(plan));
  EXPECT_EQ(touched_.back(), 0);
  EXPECT_GE(backend_.prepared_by[0], 20);
}

TEST_F(PrepareTest, EnoughIsCountedOneByOneOnAnyNumberOfLanes) {
  Add(10);
  backend_.candidates[0].prepare = absl::UnimplementedError("no");
  backend_.candidates[1].prepared.over_memory = true;
  PreparePlan plan;
  plan.lanes = 4;
  plan.stop_after = 2;
  EXPECT_FALSE(*Prepare(plan));
  EXPECT_THAT(prepared_, ElementsAre(0, 1, 2, 3));
}

TEST_F(PrepareTest, DeadlineIsSaid) {
  Add(3);
  PreparePlan plan;
  plan.lanes = 2;
  plan.deadline = absl::InfinitePast();
  EXPECT_TRUE(*Prepare(plan));
  EXPECT_THAT(touched_, SizeIs(0));
}

TEST_F(PrepareTest, ErrorOfACallbackEndsIt) {
  Add(100);
  touch_status_ = absl::OutOfRangeError("the daemon is gone");
  PreparePlan plan;
  plan.lanes = 4;
  EXPECT_EQ(Prepare(plan).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(touched_, SizeIs(1));
  EXPECT_THAT(prepared_, SizeIs(0));
}

}  // namespace
}  // namespace convtune
