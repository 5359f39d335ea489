#include "tests/fakes/memory_store.h"
#include "tests/unit/db/sample_releases.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A store in memory: the fake that other tests stand on keeps to the same rules.
class MemoryStoreTest : public ::testing::Test {
 protected:
  void Reopen() {}
  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>();
};

// What every store promises of releases.
template <typename Engine>
class ReleaseStoreTest : public Engine {
 protected:
  void PutRelease(const Release& release, const std::vector<Portfolio>& portfolios = {}) {
    const absl::Status status = this->store_->PutRelease(release, portfolios);
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<Portfolio> Of(int64_t release, const std::string& environment = "") {
    std::vector<Portfolio> portfolios;
    const absl::Status status = this->store_->ForEachPortfolio(
        environment, release, [&](Portfolio p) { portfolios.push_back(std::move(p)); },
        [](const std::string& text) { ADD_FAILURE() << "corrupt: " << text; });
    EXPECT_TRUE(status.ok()) << status;
    return portfolios;
  }
};

using Engines = ::testing::Types<OpenStoreTest, MemoryStoreTest>;
TYPED_TEST_SUITE(ReleaseStoreTest, Engines);

TYPED_TEST(ReleaseStoreTest, GivesBackReleasesAsTheyWerePut) {
  Release canary = SampleCanary(2);
  this->PutRelease(canary);
  this->PutRelease(SampleRelease(1));
  canary.state = ReleaseState::kRolledBack;
  canary.end_author = "bob";
  canary.end_reason = "slower";
  canary.end_time = absl::FromUnixMicros(1'700'000'000'000'777);
  this->PutRelease(canary);
  this->Reopen();
  EXPECT_THAT(*this->store_->ListReleases(), ElementsAre(SampleRelease(1), canary));
}

TYPED_TEST(ReleaseStoreTest, GivesBackPortfoliosAsTheyWerePut) {
  this->PutRelease(SampleRelease(1), {SamplePortfolio(2, 7), SamplePortfolio(1, 5)});
  this->Reopen();
  EXPECT_THAT(this->Of(1), ElementsAre(SamplePortfolio(1, 5), SamplePortfolio(2, 7)));
  EXPECT_EQ(*this->store_->GetPortfolio(SamplePortfolio(2, 0).key, 1), SamplePortfolio(2, 7));
}

TYPED_TEST(ReleaseStoreTest, AReleaseHasWhatTheOneBeforeHadAndItDidNotChange) {
  this->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)});
  this->PutRelease(SampleRelease(3), {SamplePortfolio(2, 9)});
  EXPECT_THAT(this->Of(2), ElementsAre(SamplePortfolio(1, 5), SamplePortfolio(2, 5)));
  EXPECT_THAT(this->Of(3), ElementsAre(SamplePortfolio(1, 5), SamplePortfolio(2, 9, 3)));
  EXPECT_TRUE(this->Of(0).empty());
}

TYPED_TEST(ReleaseStoreTest, PutReplacesTheSameProblemsOfTheSameRelease) {
  this->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)});
  Portfolio shorter = SamplePortfolio(1, 6);
  shorter.choices.pop_back();
  this->PutRelease(SampleRelease(1), {shorter});
  EXPECT_THAT(this->Of(1), ElementsAre(shorter, SamplePortfolio(2, 5)));
}

TYPED_TEST(ReleaseStoreTest, AChoiceThatWasWithdrawnIsGoneFromThatReleaseOn) {
  this->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)});
  this->PutRelease(SampleRelease(2), {NoChoice(1, 2)});
  this->Reopen();
  EXPECT_THAT(this->Of(2), ElementsAre(NoChoice(1, 2)));
  EXPECT_THAT(this->Of(1), ElementsAre(SamplePortfolio(1, 5)));
  EXPECT_EQ(*this->store_->GetPortfolio(NoChoice(1, 2).key, 2), NoChoice(1, 2));
}

TYPED_TEST(ReleaseStoreTest, GetOfAProblemWithoutChoiceIsNotFound) {
  this->PutRelease(SampleRelease(2), {SamplePortfolio(1, 5)});
  EXPECT_TRUE(absl::IsNotFound(this->store_->GetPortfolio(SamplePortfolio(2, 5).key, 2).status()));
  EXPECT_TRUE(absl::IsNotFound(this->store_->GetPortfolio(SamplePortfolio(1, 5).key, 1).status()));
}

TYPED_TEST(ReleaseStoreTest, ARolledBackReleaseLeavesNoPortfolio) {
  this->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)});
  this->PutRelease(SampleRelease(2), {SamplePortfolio(1, 9)});
  Release rolled_back = SampleRelease(2);
  rolled_back.state = ReleaseState::kRolledBack;
  this->PutRelease(rolled_back);
  EXPECT_THAT(this->Of(2), ElementsAre(SamplePortfolio(1, 5)));
  EXPECT_EQ(this->store_->ListReleases()->back(), rolled_back);
}

TYPED_TEST(ReleaseStoreTest, OtherEnvironmentsAreLeftOutOnRequest) {
  Portfolio other = SamplePortfolio(1, 5);
  other.key.environment_text = "profile:nvidia-l4,cc=8.9,sms=58,cudnn=9.19.0,lib=full";
  this->PutRelease(SampleRelease(1), {other, SamplePortfolio(1, 5)});
  EXPECT_THAT(this->Of(1, other.key.environment_text), ElementsAre(other));
  EXPECT_EQ(this->Of(1).size(), 2U);
}

TYPED_TEST(ReleaseStoreTest, ThinningKeepsWhatReleasesFromTheOldestOnHave) {
  this->PutRelease(SampleRelease(1), {SamplePortfolio(1, 1), SamplePortfolio(2, 1)});
  this->PutRelease(SampleRelease(2), {SamplePortfolio(1, 2)});
  this->PutRelease(SampleRelease(3), {SamplePortfolio(1, 3)});
  this->PutRelease(SampleRelease(4), {SamplePortfolio(1, 4)});
  const auto third = this->Of(3);
  const auto fourth = this->Of(4);
  // Releases 1 and 2 lose the first problem's two portfolios of two choices.
  EXPECT_EQ(*this->store_->ThinPortfolios(3), 4);
  EXPECT_EQ(this->Of(3), third);
  EXPECT_EQ(this->Of(4), fourth);
  EXPECT_EQ(*this->store_->ThinPortfolios(3), 0);
}

TYPED_TEST(ReleaseStoreTest, WantedProblemsAreReplacedDroppedAndListed) {
  ASSERT_TRUE(
      this->store_->UpdateWanted({SampleWanted(2), SampleWanted(1), SampleWanted(3)}, {}).ok());
  WantedProblem again = SampleWanted(1);
  again.misses = 99;
  again.last_error = "";
  ASSERT_TRUE(this->store_->UpdateWanted({again}, {SampleWanted(2).key}).ok());
  this->Reopen();
  EXPECT_THAT(*this->store_->ListWanted(), ElementsAre(again, SampleWanted(3)));
}

class ReleaseDamageTest : public OpenStoreTest {
 protected:
  // Two problems of one release, and a change to one row.
  void FillAndRun(const std::string& sql) {
    ASSERT_TRUE(
        store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)}).ok());
    ASSERT_TRUE(store_->UpdateWanted({SampleWanted(1)}, {}).ok());
    Reopen(sql);
  }
  std::vector<Portfolio> SoundPortfolios() {
    std::vector<Portfolio> sound;
    EXPECT_TRUE(store_
                    ->ForEachPortfolio(
                        "", 1, [&](Portfolio p) { sound.push_back(std::move(p)); },
                        [&](const std::string& text) { corrupt_.push_back(text); })
                    .ok());
    return sound;
  }
};

TEST_F(ReleaseDamageTest, AChangedChoiceCostsItsWholePortfolio) {
  FillAndRun("UPDATE choices SET candidate = 'graph:eng99' WHERE place = 1 AND problem_text = '" +
             SamplePortfolio(1, 5).key.problem_text + "'");
  EXPECT_THAT(SoundPortfolios(), ElementsAre(SamplePortfolio(2, 5)));
  EXPECT_FALSE(corrupt_.empty());
  EXPECT_TRUE(absl::IsDataLoss(store_->GetPortfolio(SamplePortfolio(1, 5).key, 1).status()));
  EXPECT_THAT(store_->Check()->findings(), Contains(HasSubstr("choices row")));
}

TEST_F(ReleaseDamageTest, AMissingChoiceCostsItsWholePortfolio) {
  FillAndRun("DELETE FROM choices WHERE place = 0 AND problem_text = '" +
             SamplePortfolio(2, 5).key.problem_text + "'");
  EXPECT_THAT(SoundPortfolios(), ElementsAre(SamplePortfolio(1, 5)));
  EXPECT_THAT(corrupt_, ElementsAre(HasSubstr("a choice is missing")));
}

TEST_F(ReleaseDamageTest, ADamagedReleaseOrWantedProblemIsLeftOutAndReported) {
  FillAndRun("UPDATE releases SET author = 'eve'; UPDATE wanted SET misses = 1000000");
  EXPECT_THAT(*store_->ListReleases(), IsEmpty());
  EXPECT_THAT(*store_->ListWanted(), IsEmpty());
  EXPECT_EQ(notices_.size(), 2U);
}

}  // namespace
}  // namespace convtune::db::store
