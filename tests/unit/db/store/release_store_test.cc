#include "tests/unit/db/release_store_conformance.h"

#include "tests/fakes/memory_store.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct SqliteEngine {
  absl::StatusOr<TuningStore*> Open() {
    store.reset();
    SqliteStore::Options options;
    options.state_dir = state.path();
    options.clock = &clock;
    options.allow_network_fs = true;
    absl::StatusOr<std::unique_ptr<SqliteStore>> opened = SqliteStore::Open(std::move(options));
    if (!opened.ok()) return opened.status();
    store = *std::move(opened);
    return store.get();
  }

  TestFolder state;
  ManualClock clock;
  std::unique_ptr<SqliteStore> store;
};

// The fake that other tests stand on keeps to the same rules.
struct MemoryEngine {
  absl::StatusOr<TuningStore*> Open() { return &store; }
  MemoryStore store;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, ReleaseStoreConformance, SqliteEngine);
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, ReleaseStoreConformance, MemoryEngine);

class ReleaseDamageTest : public StoreTest {
 protected:
  // Two problems of one release, and a change to one row.
  void FillAndRun(const std::string& sql) {
    {
      auto store = Open();
      ASSERT_TRUE(
          store->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)}).ok());
      ASSERT_TRUE(store->UpdateWanted({SampleWanted(1)}, {}).ok());
      ASSERT_TRUE(store->Close().ok());
    }
    Run(sql);
    store_ = Open();
    ASSERT_NE(store_, nullptr);
  }
  std::vector<Portfolio> Sound() {
    std::vector<Portfolio> sound;
    EXPECT_TRUE(store_
                    ->ForEachPortfolio(
                        "", 1, [&](Portfolio p) { sound.push_back(std::move(p)); },
                        [&](const std::string& text) { corrupt_.push_back(text); })
                    .ok());
    return sound;
  }

  std::unique_ptr<SqliteStore> store_;
  std::vector<std::string> corrupt_;
};

TEST_F(ReleaseDamageTest, AChangedChoiceCostsItsWholePortfolio) {
  FillAndRun("UPDATE choices SET candidate = 'graph:eng99' WHERE place = 1 AND problem_text = '" +
             SamplePortfolio(1, 5).key.problem_text + "'");
  EXPECT_THAT(Sound(), ElementsAre(SamplePortfolio(2, 5)));
  EXPECT_FALSE(corrupt_.empty());
  EXPECT_TRUE(absl::IsDataLoss(store_->GetPortfolio(SamplePortfolio(1, 5).key, 1).status()));
  EXPECT_THAT(store_->Check()->findings(), ::testing::Contains(HasSubstr("choices row")));
}

TEST_F(ReleaseDamageTest, AMissingChoiceCostsItsWholePortfolio) {
  FillAndRun("DELETE FROM choices WHERE place = 0 AND problem_text = '" +
             SamplePortfolio(2, 5).key.problem_text + "'");
  EXPECT_THAT(Sound(), ElementsAre(SamplePortfolio(1, 5)));
  EXPECT_THAT(corrupt_, ElementsAre(HasSubstr("a choice is missing")));
}

TEST_F(ReleaseDamageTest, ADamagedReleaseOrWantedProblemIsLeftOutAndReported) {
  FillAndRun("UPDATE releases SET author = 'eve'; UPDATE wanted SET misses = 1000000");
  EXPECT_THAT(*store_->ListReleases(), IsEmpty());
  EXPECT_THAT(*store_->ListWanted(), IsEmpty());
  EXPECT_EQ(notices_.size(), 2U);
}

TEST_F(ReleaseDamageTest, ASoundOneIsChecked) {
  FillAndRun("");
  const auto check = store_->Check();
  ASSERT_TRUE(check.ok());
  EXPECT_THAT(check->findings(), IsEmpty());
  EXPECT_GE(check->rows_checked(), 6);
}

using ReleaseRowsTest = StoreTest;

TEST_F(ReleaseRowsTest, DeletingATuningLeavesItsChoices) {
  auto store = Open();
  ASSERT_TRUE(store->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  ASSERT_TRUE(store->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)}).ok());
  ASSERT_TRUE(store->DeleteTunings({SampleTuning(1).key}).ok());
  EXPECT_TRUE(store->GetPortfolio(SampleTuning(1).key, 1).ok());
  EXPECT_EQ(store->ListEnvironments()->size(), 1U);
}

TEST_F(ReleaseRowsTest, AReadOnlyStoreServesReleasesAndRefusesNewOnes) {
  {
    auto store = Open();
    ASSERT_TRUE(store->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)}).ok());
    ASSERT_TRUE(store->Close().ok());
  }
  auto options = Options();
  options.read_only = true;
  auto store = Open(options);
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(1).key, 1), SamplePortfolio(1, 5));
  EXPECT_TRUE(absl::IsUnavailable(store->PutRelease(SampleRelease(2), {})));
}

}  // namespace
}  // namespace convtune::db::store
