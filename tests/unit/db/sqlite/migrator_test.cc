#include "db/sqlite/database_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/db/test_folder.h"

namespace convtune::db::sqlite {
namespace {

constexpr Migration kGood[] = {{1, "0001_a",
                                "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER);"
                                "INSERT INTO meta VALUES ('compatible_version', 1)"},
                               {2, "0002_b", "CREATE TABLE b (x); INSERT INTO b VALUES (1)"}};
constexpr Migration kBad[] = {kGood[0],
                              {2, "0002_bad", "CREATE TABLE b (x); INSERT INTO none VALUES (1)"}};

class MigratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto database = Database::Open({.path = folder_.File("x.db")});
    ASSERT_TRUE(database.ok());
    database_ = *std::move(database);
  }
  TestFolder folder_;
  std::unique_ptr<Database> database_;
};

TEST_F(MigratorTest, AppliesEachOnce) {
  ASSERT_TRUE(Migrate(*database_, kGood).ok());
  ASSERT_TRUE(Migrate(*database_, kGood).ok());
  EXPECT_EQ(*database_->UserVersion(), 2);
  EXPECT_EQ(*database_->QueryInt("SELECT COUNT(*) FROM b"), 1);
}

TEST_F(MigratorTest, OneThatFailsLeavesTheVersionBefore) {
  EXPECT_FALSE(Migrate(*database_, kBad).ok());
  EXPECT_EQ(*database_->UserVersion(), 1);
  EXPECT_EQ(*database_->QueryInt("SELECT COUNT(*) FROM sqlite_schema WHERE name = 'b'"), 0);
}

TEST_F(MigratorTest, TheListHasNoGap) {
  int expected = 1;
  for (const Migration& migration : AllMigrations()) {
    EXPECT_EQ(migration.version, expected++) << migration.name;
  }
  EXPECT_GT(expected, 1);
}

}  // namespace
}  // namespace convtune::db::sqlite
