#include "proto/model/release/release.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/model/violation.h"

namespace convtune {
namespace {

using ::testing::HasSubstr;

const ReleaseDecision kAnn = {"ann", "because", absl::FromUnixSeconds(100)};

// `count` promoted releases.
ReleaseHistory Promoted(int count) {
  ReleaseHistory history;
  history.Put(history.First(absl::FromUnixSeconds(1)));
  for (int i = 1; i < count; ++i) history.Put(history.Promote(kAnn, 0, true).value());
  return history;
}

void RollBack(ReleaseHistory* history, int64_t to = 0) {
  history->Put(history->RollBack(kAnn, to).value());
}

TEST(ReleaseHistory, NumbersRise) {
  const ReleaseHistory history = Promoted(3);
  EXPECT_EQ(history.promoted()->number, 3);
  EXPECT_EQ(history.promoted()->author, "ann");
  EXPECT_EQ(history.Find(1)->reason, "first choices");
}

TEST(ReleaseHistory, NothingToPromoteIsRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Promoted(1).Promote(kAnn, 0, false).status()));
}

TEST(ReleaseHistory, ACanaryLeavesThePromotedOneInPlaceUntilItIsPromoted) {
  ReleaseHistory history = Promoted(1);
  history.Put(history.Promote(kAnn, 50, true).value());
  EXPECT_EQ(history.promoted()->number, 1);
  EXPECT_EQ(history.canary()->canary_permille, 50);
  history.Put(history.Promote(kAnn, 200, false).value());
  EXPECT_EQ(history.canary()->canary_permille, 200);
  history.Put(history.Promote(kAnn, 0, false).value());
  EXPECT_EQ(history.canary(), nullptr);
  EXPECT_EQ(history.promoted()->number, 2);
  EXPECT_EQ(history.promoted()->end_author, "ann");
}

TEST(ReleaseHistory, RollbackOfACanaryEndsIt) {
  ReleaseHistory history = Promoted(1);
  history.Put(history.Promote(kAnn, 50, true).value());
  EXPECT_TRUE(absl::IsFailedPrecondition(history.RollBack(kAnn, 1).status()));
  RollBack(&history);
  EXPECT_EQ(history.canary(), nullptr);
  EXPECT_EQ(history.Find(2)->state, ReleaseState::kRolledBack);
  EXPECT_EQ(history.promoted()->number, 1);
  EXPECT_EQ(history.Promote(kAnn, 0, true)->number, 3);
}

TEST(ReleaseHistory, RollbackIsANewReleaseWithTheChoicesBefore) {
  ReleaseHistory history = Promoted(3);
  RollBack(&history);
  EXPECT_EQ(history.promoted()->number, 4);
  EXPECT_EQ(history.promoted()->restores, 2);
}

TEST(ReleaseHistory, RollingBackAgainGoesFurtherBack) {
  ReleaseHistory history = Promoted(3);
  RollBack(&history);
  RollBack(&history);
  EXPECT_EQ(history.promoted()->restores, 1);
  const absl::Status status = history.RollBack(kAnn, 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message(), "release: 5 is as release 1, the first: name the number of another");
  EXPECT_EQ(Promoted(1).RollBack(kAnn, 0).status().message(),
            "release: 1 is the first, there is none before it");
}

TEST(ReleaseHistory, RollbackMayNameARelease) {
  ReleaseHistory history = Promoted(4);
  RollBack(&history, 1);
  EXPECT_EQ(history.promoted()->restores, 1);
}

TEST(ReleaseHistory, RollbackToWhatIsNoneIsRefusedByName) {
  ReleaseHistory history = Promoted(2);
  const absl::Status unknown = history.RollBack(kAnn, 9).status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  ASSERT_TRUE(MissingOf(unknown).has_value());
  EXPECT_EQ(MissingOf(unknown)->kind, "release");
  EXPECT_TRUE(absl::IsFailedPrecondition(history.RollBack(kAnn, 2).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReleaseHistory().RollBack(kAnn, 0).status()));
}

TEST(ReleaseHistory, ReleasesBeyondThoseKeptCannotBeGoneBackTo) {
  ReleaseHistory history = Promoted(ReleaseHistory::kKept);
  EXPECT_EQ(history.oldest_kept(), 1);
  history.Put(history.Promote(kAnn, 0, true).value());
  EXPECT_EQ(history.oldest_kept(), 2);
  const absl::Status status = history.RollBack(kAnn, 1).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the oldest kept is 2"));
}

TEST(ReleaseHistory, HoldsBackAfterARollbackUntilTheNextPromotion) {
  ReleaseHistory history = Promoted(2);
  EXPECT_FALSE(history.holds_back());
  RollBack(&history);
  EXPECT_TRUE(history.holds_back());
  history.Put(history.Promote(kAnn, 50, true).value());
  EXPECT_FALSE(history.holds_back());
  RollBack(&history);
  EXPECT_TRUE(history.holds_back());
}

}  // namespace
}  // namespace convtune
