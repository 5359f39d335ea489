// The store on a disk that loses power, and on one whose Nth call fails.
// Of the calls and allocations every so many-th is tried; CONVTUNE_TEST_LONG=1 runs
// the full numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "db/sqlite/database_file.h"
#include "tests/unit/db/for_each_tuning.h"
#include "tests/unit/db/store/faulty_sqlite.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using Failure = FaultySqlite::Failure;

// Before any test uses SQLite. The power cuts are not the machine's, so its disk
// need not sync either.
const bool kInstalled = [] {
  FaultySqlite::Install();
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
  return true;
}();

bool IsLong() { return std::getenv("CONVTUNE_TEST_LONG") != nullptr; }

class StoreFaultTest : public StoreTest {
 protected:
  StoreFaultTest() { FaultySqlite::Disarm(); }
  ~StoreFaultTest() override { FaultySqlite::Disarm(); }

  // Compact() leaves the samples, so that tunings can be compared whole.
  SqliteStore::Options Options() {
    SqliteStore::Options options = StoreTest::Options();
    options.sample_retention = absl::Hours(24 * 365 * 100);
    return options;
  }
  std::unique_ptr<SqliteStore> Open() { return StoreTest::Open(Options()); }

  // What the store said of each tuning: true for there, false for deleted. What
  // a refused call was about is not known: it did all or nothing.
  std::map<int, bool> known_;
  std::set<int> unsure_;

  void Put(SqliteStore& store, int n) {
    Note(n, true, store.PutTuning(SampleTuning(n), SampleEnvironment()).ok());
  }

  void Delete(SqliteStore& store, int n) {
    Note(n, false, store.DeleteTunings({SampleTuning(n).key}).ok());
  }

  void Note(int n, bool there, bool acknowledged) {
    if (acknowledged) {
      known_[n] = there;
      unsure_.erase(n);
    } else {
      unsure_.insert(n);
    }
  }

  // With the faults gone.
  void ExpectAllThere() {
    notices_.clear();
    auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_THAT(notices_, ElementsAre());
    for (const auto& [n, there] : known_) {
      const auto tuning = store->GetTuning(SampleTuning(n).key);
      if (unsure_.contains(n)) {
        ASSERT_TRUE(tuning.ok() || absl::IsNotFound(tuning.status())) << n << tuning.status();
      } else if (there) {
        ASSERT_TRUE(tuning.ok()) << n << ": " << tuning.status();
      } else {
        ASSERT_TRUE(absl::IsNotFound(tuning.status())) << n << ": " << tuning.status();
      }
      if (tuning.ok()) {
        ASSERT_EQ(*tuning, SampleTuning(n));
      }
    }
    const absl::StatusOr<v1::CheckDatabaseResponse> check = store->Check();
    ASSERT_TRUE(check.ok()) << check.status();
    ASSERT_THAT(check->findings(), ElementsAre());
    ASSERT_TRUE(store->Close().ok());
  }

  // What is done while something fails; results may be refusals.
  void Scenario() {
    auto opened = SqliteStore::Open(Options());
    if (!opened.ok()) return;
    SqliteStore& store = **opened;
    Put(store, 4);
    Put(store, 5);
    Delete(store, 1);
    static_cast<void>(store.PutPin({SampleTuning(2).key, EngineConfig{20, {}}, "", {}, {}}));
    std::vector<std::string> corrupt;
    static_cast<void>(ForEachTuning(
        store,
        [](const Tuning& tuning) {
          // A read that fails gives nothing, and never something else.
          EXPECT_EQ(tuning.candidates.size(), SampleTuning(NumberOf(tuning)).candidates.size());
        },
        [&](const std::string& text) { corrupt.push_back(text); }));
    static_cast<void>(store.Check());
    static_cast<void>(store.Compact());
    Put(store, 6);
    static_cast<void>(store.Close());
  }

  // Three tunings, as an orderly stop leaves them.
  void Start() {
    FaultySqlite::Disarm();
    folder_.Clear();
    WriteWholeFile(DatabasePath(), pristine_);
    known_ = {{1, true}, {2, true}, {3, true}, {4, false}, {5, false}, {6, false}};
    unsure_.clear();
  }

  void MakePristine() {
    Fill(3);
    pristine_ = ReadWholeFile(DatabasePath());
  }

  // Runs the scenario with the first call failing as `arm` has it, then with one `stride` later,
  // until none fails. Returns how many did.
  int64_t FailEach(int64_t stride, const std::function<void(int64_t)>& arm) {
    MakePristine();
    int64_t failed = 0;
    for (bool fired = true; fired; failed += fired ? 1 : 0) {
      const int64_t n = 1 + failed * stride;
      Start();
      arm(n);
      Scenario();
      fired = FaultySqlite::fired();
      FaultySqlite::Disarm();
      ExpectAllThere();
      if (HasFailure()) {
        ADD_FAILURE() << "at call or allocation " << n;
        break;
      }
    }
    EXPECT_TRUE(unsure_.empty()) << "the last pass was a clean one";
    return failed;
  }

  std::string pristine_;
};

TEST_F(StoreFaultTest, WhatWasAcknowledgedSurvivesPowerCuts) {
  const int cycles = IsLong() ? 1000 : 50;
  std::mt19937_64 random(20240229);
  int64_t lost = 0;
  int64_t acknowledged = 0;
  int next = 1;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    FaultySqlite::ArmCall(1 + static_cast<int64_t>(random() % 300), Failure::kPower);
    if (auto store = SqliteStore::Open(Options()); store.ok()) {
      for (int i = 0; i < 40 && !FaultySqlite::fired(); ++i, ++next) {
        Put(**store, next);
        acknowledged += unsure_.contains(next) ? 0 : 1;
        if (random() % 5 == 0 && next > 3) Delete(**store, next - 2);
        if (random() % 7 == 0) static_cast<void>((*store)->Compact());
      }
      if (!FaultySqlite::fired()) static_cast<void>((*store)->Close());
    }
    lost += FaultySqlite::RestorePower(random());
    ExpectAllThere();
    if (HasFailure()) FAIL() << "in cycle " << cycle;
    // Older ones were looked at often enough.
    while (known_.size() > 200) known_.erase(known_.begin());
  }
  EXPECT_GT(lost, cycles) << "the cuts must cost something that was not synced";
  EXPECT_GT(acknowledged, cycles);
}

class EveryCall : public StoreFaultTest, public ::testing::WithParamInterface<Failure> {};

INSTANTIATE_TEST_SUITE_P(Fails, EveryCall, ::testing::Values(Failure::kError, Failure::kFull));

TEST_P(EveryCall, ThatFailsCostsNoMoreThanItsOwnCall) {
  EXPECT_GT(FailEach(IsLong() ? 1 : 5, [](int64_t n) { FaultySqlite::ArmCall(n, GetParam()); }), 4);
}

TEST_P(EveryCall, ThatFailsLeavesAnOldSchemaAsItIsOrMigratedBesideItsCopy) {
  MakePristine();
  const std::vector<sqlite::Migration> migrations = WithASecondVersion();
  const std::string copy = DatabasePath() + ".schema-1";
  int64_t n = 0;
  int64_t refused = 0;
  bool fired = true;
  while (fired && ++n < 100'000) {
    Start();
    FaultySqlite::ArmCall(n, GetParam());
    const absl::Status opened = sqlite::OpenDatabaseFile(FileOptions(migrations)).status();
    fired = FaultySqlite::fired();
    FaultySqlite::Disarm();
    ASSERT_THAT(folder_.Names(),
                ::testing::Not(::testing::Contains(::testing::AnyOf(
                    ::testing::HasSubstr("partial"), ::testing::HasSubstr("corrupt")))))
        << "at call " << n;
    auto database = sqlite::Database::Open({.path = DatabasePath()});
    ASSERT_TRUE(database.ok()) << database.status();
    const int64_t version = (*database)->UserVersion().value_or(-1);
    if (!std::filesystem::exists(copy)) {
      ASSERT_EQ(version, 1) << "migrated without a copy, at call " << n;
      ASSERT_FALSE(opened.ok()) << "at call " << n;
      refused += absl::StrContains(opened.message(), "the copy to keep of it") ? 1 : 0;
      if (GetParam() == Failure::kFull) {
        ASSERT_TRUE(absl::IsResourceExhausted(opened)) << opened << " at call " << n;
      }
    } else {
      auto kept =
          sqlite::Database::Open({.path = copy, .access = sqlite::Database::Access::kImmutable});
      ASSERT_TRUE(kept.ok()) << kept.status();
      ASSERT_EQ((*kept)->UserVersion().value_or(-1), 1);
      ASSERT_EQ((*kept)->QueryInt("SELECT COUNT(*) FROM tunings").value_or(-1), 3);
      ASSERT_TRUE((*kept)->QuickCheck().ok());
    }
    ASSERT_EQ((*database)->QueryInt("SELECT COUNT(*) FROM tunings").value_or(-1), 3);
  }
  EXPECT_GT(refused, 5);
}

TEST_F(StoreFaultTest, AnyAllocationThatFailsCostsNoMoreThanItsOwnCall) {
  // All of them are some thousands.
  EXPECT_GT(FailEach(IsLong() ? 1 : 53, FaultySqlite::ArmAllocation), 10);
}

// To a second schema version, with the power or a call failing at every call.
class AMigration : public StoreFaultTest, public ::testing::WithParamInterface<Failure> {};

INSTANTIATE_TEST_SUITE_P(WithAFailure, AMigration,
                         ::testing::Values(Failure::kPower, Failure::kError));

TEST_P(AMigration, ThatIsCutShortIsDoneByTheNextStart) {
  const Failure failure = GetParam();
  const std::vector<sqlite::Migration> migrations = WithASecondVersion();
  Fill(3);
  Run("SELECT 1");
  pristine_ = ReadWholeFile(DatabasePath());
  const int64_t stride = IsLong() ? 1 : 3;
  int64_t n = 1;
  for (bool fired = true; fired; n += stride) {
    Start();
    FaultySqlite::ArmCall(n, failure);
    static_cast<void>(sqlite::OpenDatabaseFile(FileOptions(migrations)));
    fired = FaultySqlite::fired();
    if (failure == Failure::kPower) {
      FaultySqlite::RestorePower(static_cast<uint64_t>(n));
    } else {
      FaultySqlite::Disarm();
    }
    notices_.clear();
    {
      auto file = sqlite::OpenDatabaseFile(FileOptions(migrations));
      ASSERT_TRUE(file.ok() && file->writer != nullptr) << "at call " << n;
      EXPECT_EQ(*file->writer->UserVersion(), 2);
      EXPECT_EQ(*file->writer->QueryInt("SELECT COUNT(*) FROM second WHERE length > 0"), 3);
    }
    EXPECT_THAT(notices_, ::testing::Each(::testing::HasSubstr("schema version 1 to 2")))
        << "at call " << n;
    auto store = Open();
    ASSERT_NE(store, nullptr) << "at call " << n;
    ASSERT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1)) << "at call " << n;
    ASSERT_THAT(store->Check()->findings(), ElementsAre()) << "at call " << n;
    ASSERT_TRUE(store->Close().ok());
  }
  EXPECT_GT(n, 10);
}

}  // namespace
}  // namespace convtune::db::store
