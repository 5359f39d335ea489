// An SQLite store in a folder of its own, and raw access to its file.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "db/sqlite/database.h"
#include "db/sqlite/database_file.h"
#include "db/store/sqlite_store.h"
#include "tests/unit/db/for_each_tuning.h"
#include "tests/unit/db/sample_tunings.h"
#include "tests/unit/db/test_folder.h"

namespace convtune::db::store {

// The schema of this program, and a made-up version behind it that older programs
// can use.
inline std::vector<sqlite::Migration> WithASecondVersion() {
  std::vector<sqlite::Migration> migrations(sqlite::AllMigrations().begin(),
                                            sqlite::AllMigrations().end());
  migrations.push_back(
      {sqlite::LatestVersion(sqlite::AllMigrations()) + 1, "second",
       "CREATE TABLE second (tuning_id INTEGER PRIMARY KEY, length INTEGER NOT NULL);"
       "INSERT INTO second SELECT tuning_id, length(problem_text) FROM tunings"});
  return migrations;
}

class StoreTest : public ::testing::Test {
 protected:
  SqliteStore::Options Options() {
    SqliteStore::Options options;
    options.state_dir = folder_.path();
    options.clock = &clock_;
    options.notice = [this](const std::string& text) { notices_.push_back(text); };
    // The machine that tests run on may have its temporary folder anywhere.
    options.file_system_probe = [](const std::string&) {
      return sqlite::FileSystemInfo{0xEF53, "ext4"};
    };
    return options;
  }

  // The store, which must open.
  std::unique_ptr<SqliteStore> Open() { return Open(Options()); }
  static std::unique_ptr<SqliteStore> Open(SqliteStore::Options options) {
    auto store = SqliteStore::Open(std::move(options));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  // Of the file that Open() opens, with another schema. `migrations` must outlive
  // them.
  sqlite::DatabaseFileOptions FileOptions(std::span<const sqlite::Migration> migrations) {
    sqlite::DatabaseFileOptions options;
    options.path = DatabasePath();
    options.clock = &clock_;
    options.migrations = migrations;
    options.notice = [this](const std::string& text) { notices_.push_back(text); };
    return options;
  }

  // A store with tunings 1 to `count`, left in order.
  void Fill(int count) {
    auto store = Open();
    ASSERT_NE(store, nullptr);
    for (int n = 1; n <= count; ++n) {
      ASSERT_TRUE(store->PutTuning(SampleTuning(n), SampleEnvironment()).ok());
    }
    ASSERT_TRUE(store->Close().ok());
  }

  // Runs SQL on the file, which no store has open.
  void Run(const std::string& sql) {
    auto database = sqlite::Database::Open({.path = DatabasePath()});
    ASSERT_TRUE(database.ok()) << database.status();
    const absl::Status status = (*database)->Execute(sql);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE((*database)->Checkpoint(/*truncate=*/true).ok());
    ASSERT_TRUE((*database)->CloseAndRemoveLog().ok());
  }

  std::string DatabasePath() const { return folder_.File("convtune.db"); }

  TestFolder folder_;
  ManualClock clock_;
  std::vector<std::string> notices_;
};

// A store that is open.
class OpenStoreTest : public StoreTest {
 protected:
  void SetUp() override {
    store_ = Open();
    ASSERT_NE(store_, nullptr);
  }

  void Put(const Tuning& tuning) {
    const absl::Status status = store_->PutTuning(tuning, SampleEnvironment());
    ASSERT_TRUE(status.ok()) << status;
  }
  // Tunings 1 to `count`.
  void PutSamples(int count) {
    for (int n = 1; n <= count; ++n) Put(SampleTuning(n));
  }
  // Closes the store, runs SQL on its file and opens it again.
  void Reopen(const std::string& sql = "") {
    ASSERT_TRUE(store_->Close().ok());
    store_.reset();
    if (!sql.empty()) Run(sql);
    store_ = Open();
    ASSERT_NE(store_, nullptr);
  }
  // What is read; corrupt_ has what is not.
  std::vector<Tuning> Sound() {
    corrupt_.clear();
    std::vector<Tuning> sound;
    const absl::Status status = ForEachTuning(
        *store_, [&](Tuning tuning) { sound.push_back(std::move(tuning)); },
        [&](const std::string& text) { corrupt_.push_back(text); });
    EXPECT_TRUE(status.ok()) << status;
    return sound;
  }

  std::unique_ptr<SqliteStore> store_;
  std::vector<std::string> corrupt_;
};

// Gives tunings 1 to `count`, then `end`.
inline TuningSource SourceOf(int count, absl::Status end) {
  return [count, end, n = 0]() mutable -> absl::StatusOr<std::optional<TuningRecord>> {
    if (++n <= count) return TuningRecord{SampleTuning(n), SampleEnvironment()};
    if (!end.ok()) return end;
    return std::nullopt;
  };
}

}  // namespace convtune::db::store
