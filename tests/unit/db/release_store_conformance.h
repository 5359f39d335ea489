// What every engine of TuningStore does with releases. An engine's test instantiates the
// suite with a type that has
//   absl::StatusOr<TuningStore*> Open();  // the same data again
// What Open() gave before is ended first.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "db/tuning_store.h"
#include "tests/unit/db/sample_releases.h"

namespace convtune::db {

template <typename Engine>
class ReleaseStoreConformance : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }

  void Reopen() {
    auto store = engine_.Open();
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *store;
  }

  std::vector<Portfolio> Of(int64_t release, const std::string& environment = "") {
    std::vector<Portfolio> portfolios;
    const absl::Status status = store_->ForEachPortfolio(
        environment, release, [&](Portfolio p) { portfolios.push_back(std::move(p)); },
        [](const std::string& text) { ADD_FAILURE() << "corrupt: " << text; });
    EXPECT_TRUE(status.ok()) << status;
    return portfolios;
  }

  Engine engine_;
  TuningStore* store_ = nullptr;
};

TYPED_TEST_SUITE_P(ReleaseStoreConformance);

TYPED_TEST_P(ReleaseStoreConformance, GivesBackReleasesAsTheyWerePut) {
  Release canary = SampleRelease(2);
  canary.state = ReleaseState::kCanary;
  canary.canary_permille = 50;
  ASSERT_TRUE(this->store_->PutRelease(canary, {}).ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(1), {}).ok());
  canary.state = ReleaseState::kRolledBack;
  canary.end_author = "bob";
  canary.end_reason = "slower";
  canary.end_time = absl::FromUnixMicros(1'700'000'000'000'777);
  ASSERT_TRUE(this->store_->PutRelease(canary, {}).ok());
  this->Reopen();
  EXPECT_THAT(*this->store_->ListReleases(), ::testing::ElementsAre(SampleRelease(1), canary));
}

TYPED_TEST_P(ReleaseStoreConformance, GivesBackPortfoliosAsTheyWerePut) {
  ASSERT_TRUE(
      this->store_->PutRelease(SampleRelease(1), {SamplePortfolio(2, 7), SamplePortfolio(1, 5)})
          .ok());
  this->Reopen();
  EXPECT_THAT(this->Of(1), ::testing::ElementsAre(SamplePortfolio(1, 5), SamplePortfolio(2, 7)));
  EXPECT_EQ(*this->store_->GetPortfolio(SamplePortfolio(2, 0).key, 1), SamplePortfolio(2, 7));
}

TYPED_TEST_P(ReleaseStoreConformance, AReleaseHasWhatTheOneBeforeHadAndItDidNotChange) {
  ASSERT_TRUE(
      this->store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)})
          .ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(3), {SamplePortfolio(2, 9)}).ok());
  EXPECT_THAT(this->Of(2), ::testing::ElementsAre(SamplePortfolio(1, 5), SamplePortfolio(2, 5)));
  EXPECT_THAT(this->Of(3), ::testing::ElementsAre(SamplePortfolio(1, 5), SamplePortfolio(2, 9, 3)));
  EXPECT_TRUE(this->Of(0).empty());
}

TYPED_TEST_P(ReleaseStoreConformance, PutReplacesTheSameProblemsOfTheSameRelease) {
  ASSERT_TRUE(
      this->store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)})
          .ok());
  Portfolio shorter = SamplePortfolio(1, 6);
  shorter.choices.pop_back();
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(1), {shorter}).ok());
  EXPECT_THAT(this->Of(1), ::testing::ElementsAre(shorter, SamplePortfolio(2, 5)));
}

TYPED_TEST_P(ReleaseStoreConformance, AChoiceThatWasWithdrawnIsGoneFromThatReleaseOn) {
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)}).ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(2), {NoChoice(1, 2)}).ok());
  this->Reopen();
  EXPECT_THAT(this->Of(2), ::testing::ElementsAre(NoChoice(1, 2)));
  EXPECT_THAT(this->Of(1), ::testing::ElementsAre(SamplePortfolio(1, 5)));
  EXPECT_EQ(*this->store_->GetPortfolio(NoChoice(1, 2).key, 2), NoChoice(1, 2));
}

TYPED_TEST_P(ReleaseStoreConformance, GetOfAProblemWithoutChoiceIsNotFound) {
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(2), {SamplePortfolio(1, 5)}).ok());
  EXPECT_TRUE(absl::IsNotFound(this->store_->GetPortfolio(SamplePortfolio(2, 5).key, 2).status()));
  EXPECT_TRUE(absl::IsNotFound(this->store_->GetPortfolio(SamplePortfolio(1, 5).key, 1).status()));
}

TYPED_TEST_P(ReleaseStoreConformance, ARolledBackReleaseLeavesNoPortfolio) {
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)}).ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(2), {SamplePortfolio(1, 9)}).ok());
  Release rolled_back = SampleRelease(2);
  rolled_back.state = ReleaseState::kRolledBack;
  ASSERT_TRUE(this->store_->PutRelease(rolled_back, {}).ok());
  EXPECT_THAT(this->Of(2), ::testing::ElementsAre(SamplePortfolio(1, 5)));
  EXPECT_EQ(this->store_->ListReleases()->back(), rolled_back);
}

TYPED_TEST_P(ReleaseStoreConformance, OtherEnvironmentsAreLeftOutOnRequest) {
  Portfolio other = SamplePortfolio(1, 5);
  other.key.environment_text = "profile:nvidia-l4,cc=8.9,sms=58,cudnn=9.19.0,lib=full";
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(1), {other, SamplePortfolio(1, 5)}).ok());
  EXPECT_THAT(this->Of(1, other.key.environment_text), ::testing::ElementsAre(other));
  EXPECT_EQ(this->Of(1).size(), 2U);
}

TYPED_TEST_P(ReleaseStoreConformance, ThinningKeepsWhatReleasesFromTheOldestOnHave) {
  ASSERT_TRUE(
      this->store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 1), SamplePortfolio(2, 1)})
          .ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(2), {SamplePortfolio(1, 2)}).ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(3), {SamplePortfolio(1, 3)}).ok());
  ASSERT_TRUE(this->store_->PutRelease(SampleRelease(4), {SamplePortfolio(1, 4)}).ok());
  const auto third = this->Of(3);
  const auto fourth = this->Of(4);
  // Releases 1 and 2 lose the first problem's two portfolios of two choices.
  EXPECT_EQ(*this->store_->ThinPortfolios(3), 4);
  EXPECT_EQ(this->Of(3), third);
  EXPECT_EQ(this->Of(4), fourth);
  EXPECT_EQ(*this->store_->ThinPortfolios(3), 0);
}

TYPED_TEST_P(ReleaseStoreConformance, WantedProblemsAreReplacedDroppedAndListed) {
  ASSERT_TRUE(
      this->store_->UpdateWanted({SampleWanted(2), SampleWanted(1), SampleWanted(3)}, {}).ok());
  WantedProblem again = SampleWanted(1);
  again.misses = 99;
  again.last_error = "";
  ASSERT_TRUE(this->store_->UpdateWanted({again}, {SampleWanted(2).key}).ok());
  this->Reopen();
  EXPECT_THAT(*this->store_->ListWanted(), ::testing::ElementsAre(again, SampleWanted(3)));
}

REGISTER_TYPED_TEST_SUITE_P(
    ReleaseStoreConformance, GivesBackReleasesAsTheyWerePut, GivesBackPortfoliosAsTheyWerePut,
    AReleaseHasWhatTheOneBeforeHadAndItDidNotChange, PutReplacesTheSameProblemsOfTheSameRelease,
    AChoiceThatWasWithdrawnIsGoneFromThatReleaseOn, GetOfAProblemWithoutChoiceIsNotFound,
    ARolledBackReleaseLeavesNoPortfolio, OtherEnvironmentsAreLeftOutOnRequest,
    ThinningKeepsWhatReleasesFromTheOldestOnHave, WantedProblemsAreReplacedDroppedAndListed);

}  // namespace convtune::db
