// Committer::ApplyFleet: what a node takes from the fleet.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/commit/committer.h"
#include "tests/fakes/memory_store.h"
#include "tests/unit/candidates.h"

namespace convtune::commit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ApplyFleetTest : public ::testing::Test {
 protected:
  static Environment TheEnvironment() { return *Environment::Parse(Key(1).environment_text); }
  static TuningKey Key(int n) {
    return KeyOf("fwd,x=" + std::to_string(n) + "x8x8x8,w=8x8x3x3,pad=1,f16");
  }
  static Tuning Made(int n, int engine, Origin origin) {
    Tuning tuning = TuningOf({With(Timed(engine, 10), CandidateStatus::kTimed)});
    tuning.key = Key(n);
    tuning.origin = origin;
    return tuning;
  }
  v1::ApplyTuningsResponse Apply(std::vector<Tuning> tunings) {
    size_t place = 0;
    const auto next = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
      if (place == tunings.size()) return std::nullopt;
      return db::TuningRecord{tunings[place++], TheEnvironment()};
    };
    const auto counts = committer_.ApplyFleet(next);
    EXPECT_TRUE(counts.ok()) << counts.status();
    return counts.ok() ? *counts : v1::ApplyTuningsResponse();
  }
  std::string Winner(int n) {
    const lookup::IndexHit hit = index_.Find(Key(n));
    return hit.tuning == nullptr ? "" : ToText(hit.tuning->tuning.candidates[0].id);
  }

  MemoryStore store_;
  lookup::TuningIndex index_;
  SystemClock clock_;
  Committer committer_{&store_, &index_, &clock_};
};

TEST_F(ApplyFleetTest, TakesThePlaceOfBetterEvidence) {
  Tuning own = Made(1, 5, Origin::kLocal);
  own.candidates[0].sample_count = 1000;
  ASSERT_TRUE(committer_.Commit(own, TheEnvironment(), false));
  const v1::ApplyTuningsResponse counts =
      Apply({Made(1, 7, Origin::kFleet), Made(2, 8, Origin::kFleet)});
  EXPECT_EQ(counts.taken_count(), 2);
  EXPECT_THAT(counts.deferred(), IsEmpty());
  EXPECT_EQ(Winner(1), "graph:eng7");
  EXPECT_EQ(Winner(2), "graph:eng8");
  EXPECT_EQ(committer_.Get(Key(1))->origin, Origin::kFleet);
}

TEST_F(ApplyFleetTest, LeavesWhatWasNotDeliveredYet) {
  ASSERT_TRUE(committer_.Commit(Made(1, 5, Origin::kLocal), TheEnvironment(), false));
  store_.waits_for_fleet = Key(1).problem_text;
  const v1::ApplyTuningsResponse counts =
      Apply({Made(1, 7, Origin::kFleet), Made(2, 8, Origin::kFleet)});
  EXPECT_EQ(counts.taken_count(), 1);
  ASSERT_EQ(counts.deferred_size(), 1);
  EXPECT_EQ(counts.deferred(0).problem_text(), Key(1).problem_text);
  EXPECT_EQ(counts.deferred(0).environment_text(), Key(1).environment_text);
  EXPECT_EQ(Winner(1), "graph:eng5");
}

TEST_F(ApplyFleetTest, WhatIsTheSameIsNotWrittenAgain) {
  EXPECT_EQ(Apply({Made(1, 7, Origin::kFleet)}).taken_count(), 1);
  const v1::ApplyTuningsResponse again = Apply({Made(1, 7, Origin::kFleet)});
  EXPECT_EQ(again.taken_count(), 0);
  EXPECT_EQ(again.unchanged_count(), 1);
}

TEST_F(ApplyFleetTest, AWithdrawalLeavesATuningOfThisNodeThatTookTheFleetsPlace) {
  Apply({Made(1, 7, Origin::kFleet), Made(2, 8, Origin::kFleet)});
  ASSERT_TRUE(committer_.Commit(Made(1, 5, Origin::kLocal), TheEnvironment(), /*forced=*/true));
  EXPECT_EQ(*committer_.Delete({Key(1), Key(2), Key(3)}, /*fleets_alone=*/true), 1);
  EXPECT_EQ(Winner(1), "graph:eng5");
  EXPECT_EQ(Winner(2), "");
  EXPECT_TRUE(store_.GetTuning(Key(1)).ok());
}

TEST_F(ApplyFleetTest, WhatIsQuarantinedHereIsNoAnswer) {
  committer_.Quarantine({Key(1),
                         EngineConfig{7, {}},
                         QuarantineReason::kCrashed,
                         "illegal address",
                         absl::UnixEpoch(),
                         {}});
  Tuning made = Made(1, 7, Origin::kFleet);
  made.candidates.push_back(With(Timed(9, 12), CandidateStatus::kTimed));
  EXPECT_EQ(Apply({made}).taken_count(), 1);
  EXPECT_EQ(Winner(1), "graph:eng9");
}

}  // namespace
}  // namespace convtune::commit
