#include "db/sqlite/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/db/test_folder.h"

namespace convtune::db::sqlite {
namespace {

class DatabaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    database_ = Open();
    ASSERT_TRUE(database_->Initialize().ok());
    ASSERT_TRUE(database_->EnableWal().ok());
    ASSERT_TRUE(database_->Execute("CREATE TABLE t (x INTEGER) STRICT").ok());
  }
  std::unique_ptr<Database> Open() {
    auto database =
        Database::Open({.path = folder_.File("x.db"), .busy_timeout = absl::Milliseconds(1)});
    EXPECT_TRUE(database.ok()) << database.status();
    return *std::move(database);
  }
  int64_t Count() { return *database_->QueryInt("SELECT COUNT(*) FROM t"); }

  TestFolder folder_;
  std::unique_ptr<Database> database_;
};

TEST_F(DatabaseTest, OwnsItsPragmas) {
  const std::pair<const char*, int64_t> expected[] = {
      {"foreign_keys", 1},       {"trusted_schema", 0},
      {"cell_size_check", 1},    {"temp_store", 2},
      {"wal_autocheckpoint", 0}, {"synchronous", 2},
      {"auto_vacuum", 2},        {"application_id", Database::kApplicationId}};
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(*database_->QueryInt(std::string("PRAGMA ") + name), value) << name;
  }
}

TEST_F(DatabaseTest, ATransactionWithoutCommitLeavesNothing) {
  {
    auto transaction = Transaction::Begin(*database_);
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(database_->Execute("INSERT INTO t VALUES (1)").ok());
  }
  EXPECT_EQ(Count(), 0);
}

TEST_F(DatabaseTest, ACommittedTransactionIsSeenByAnotherConnection) {
  auto transaction = Transaction::Begin(*database_);
  ASSERT_TRUE(transaction.ok());
  ASSERT_TRUE(database_->Execute("INSERT INTO t VALUES (1)").ok());
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(*Open()->QueryInt("SELECT COUNT(*) FROM t"), 1);
}

TEST_F(DatabaseTest, ALockThatIsNotFreeIsUnavailableAndNamesTheFile) {
  auto other = Open();
  const auto held = Transaction::Begin(*other);
  ASSERT_TRUE(held.ok());
  const absl::Status status = Transaction::Begin(*database_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::StartsWith(folder_.File("x.db") + ": "),
                               ::testing::HasSubstr("database is locked")));
}

TEST_F(DatabaseTest, AFullDiskIsResourceExhaustedAndRollsBack) {
  ASSERT_TRUE(database_->Execute("PRAGMA max_page_count=4").ok());
  {
    auto transaction = Transaction::Begin(*database_);
    ASSERT_TRUE(transaction.ok());
    const absl::Status status = database_->Execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
        "INSERT INTO t SELECT i FROM n");
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
  EXPECT_EQ(Count(), 0);
  EXPECT_TRUE(database_->Execute("INSERT INTO t VALUES (1)").ok());
}

TEST_F(DatabaseTest, AFileThatIsNoDatabaseIsDataLoss) {
  WriteWholeFile(folder_.File("no.db"), std::string(8192, 'x'));
  auto database = Database::Open({.path = folder_.File("no.db")});
  ASSERT_TRUE(database.ok()) << database.status();
  EXPECT_TRUE(absl::IsDataLoss((*database)->UserVersion().status()));
}

TEST_F(DatabaseTest, WritingThroughAReadOnlyConnectionIsUnavailable) {
  auto reader =
      Database::Open({.path = folder_.File("x.db"), .access = Database::Access::kReadOnly});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(absl::IsUnavailable((*reader)->Execute("INSERT INTO t VALUES (1)")));
}

TEST_F(DatabaseTest, AFolderThatDoesNotExistIsUnavailable) {
  EXPECT_TRUE(absl::IsUnavailable(Database::Open({.path = folder_.File("no/x.db")}).status()));
}

TEST_F(DatabaseTest, AnImmutablePathMayHoldCharactersOfUris) {
  const std::string path = folder_.File("a?b#c%41.db");
  {
    auto database = Database::Open({.path = path});
    ASSERT_TRUE((*database)->Execute("CREATE TABLE u (x)").ok());
  }
  auto reader = Database::Open({.path = path, .access = Database::Access::kImmutable});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(*(*reader)->QueryInt("SELECT COUNT(*) FROM u"), 0);
}

TEST_F(DatabaseTest, OnlyACheckpointWritesTheFile) {
  ASSERT_TRUE(database_->Checkpoint(/*truncate=*/true).ok());
  const auto before = std::filesystem::file_size(folder_.File("x.db"));
  ASSERT_TRUE(database_
                  ->Execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                            "WHERE i < 500000) INSERT INTO t SELECT i FROM n")
                  .ok());
  EXPECT_GT(database_->wal_frames(), 1024);
  EXPECT_EQ(std::filesystem::file_size(folder_.File("x.db")), before);
  ASSERT_TRUE(database_->Checkpoint(/*truncate=*/true).ok());
  EXPECT_GT(std::filesystem::file_size(folder_.File("x.db")), before);
  EXPECT_EQ(std::filesystem::file_size(folder_.File("x.db-wal")), 0U);
}

}  // namespace
}  // namespace convtune::db::sqlite
