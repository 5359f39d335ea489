// Whose a file is, and its schema.
#include "db/sqlite/database_file.h"

#include <filesystem>

#include "tests/unit/db/sample_releases.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::sqlite {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DatabaseFileTest : public store::StoreTest {
 protected:
  // Every object of the schema, in SQL.
  static std::vector<std::string> Schema(const std::string& path) {
    auto database = Database::Open({.path = path, .access = Database::Access::kImmutable});
    EXPECT_TRUE(database.ok()) << database.status();
    auto statement = (*database)->Prepare(
        "SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1");
    EXPECT_TRUE(statement.ok()) << statement.status();
    std::vector<std::string> schema;
    while (*statement->Step()) {
      schema.emplace_back(statement->Text(0));
    }
    return schema;
  }

  const std::vector<Migration> migrations_ = store::WithASecondVersion();
};

TEST_F(DatabaseFileTest, RefusesAnotherApplicationsDatabaseAndLeavesIt) {
  Run("CREATE TABLE t (x); PRAGMA application_id=7");
  const std::string before = ReadWholeFile(DatabasePath());
  const absl::Status status = store::SqliteStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another application"));
  EXPECT_EQ(ReadWholeFile(DatabasePath()), before);
  EXPECT_THAT(folder_.Names(), ElementsAre("convtune.db", "convtune.lock"));
}

TEST_F(DatabaseFileTest, RefusesANewerSchemaNamingBothVersionsAndLeavesIt) {
  Fill(1);
  Run("PRAGMA user_version=99; UPDATE meta SET value=98 WHERE key='compatible_version'");
  const std::string before = ReadWholeFile(DatabasePath());
  const absl::Status status = store::SqliteStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("schema version 99"), HasSubstr("knows version 98"),
            HasSubstr("this one knows version " + std::to_string(LatestVersion(AllMigrations())))));
  EXPECT_EQ(ReadWholeFile(DatabasePath()), before);
}

TEST_F(DatabaseFileTest, OpensANewerSchemaThatSaysItIsCompatible) {
  Fill(1);
  Run("PRAGMA user_version=99; ALTER TABLE meta ADD COLUMN note TEXT");
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->SchemaVersion(), 99);
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_TRUE(store->PutTuning(SampleTuning(2), SampleEnvironment()).ok());
}

TEST_F(DatabaseFileTest, AnEmptyFileBecomesADatabase) {
  WriteWholeFile(DatabasePath(), "");
  EXPECT_NE(Open(), nullptr);
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(DatabaseFileTest, WhatCannotBeReadIsUnavailableAndLeft) {
  std::filesystem::create_directory(DatabasePath());
  EXPECT_TRUE(absl::IsUnavailable(store::SqliteStore::Open(Options()).status()));
  EXPECT_THAT(folder_.Names(), ElementsAre("convtune.db", "convtune.lock"));
}

TEST_F(DatabaseFileTest, OpensADatabaseOfSchemaVersionOneWithItsRows) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v1.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(store->SchemaVersion(), LatestVersion(AllMigrations()));
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_EQ(*store->GetTuning(SampleTuning(2).key), SampleTuning(2));
  // What an older program did not keep.
  Tuning measured = SampleMeasuredTuning(3);
  measured.conditions.retried_runs = 0;
  measured.conditions.unblocked.clear();
  EXPECT_EQ(*store->GetTuning(SampleTuning(3).key), measured);
  EXPECT_EQ(*store->GetTuning(SampleTuning(4).key), SampleIncompleteTuning(4));
  EXPECT_THAT(*store->ListEnvironments(), ElementsAre(SampleEnvironment()));
  EXPECT_THAT(*store->ListPins(), ElementsAre(SamplePin(1)));
  EXPECT_THAT(*store->ListQuarantine(),
              ::testing::UnorderedElementsAre(SampleQuarantine(), SampleHang()));
  EXPECT_THAT(*store->ListReleases(), ElementsAre(SampleRelease(1), SampleCanary(2)));
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(1).key, 1), SamplePortfolio(1, 5));
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(1).key, 2), SamplePortfolio(1, 9, 2));
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(2).key, 2), NoChoice(2, 2));
  EXPECT_THAT(*store->ListWanted(), ElementsAre(SampleWanted(3)));
  const auto page = store->ReadOutbox(10, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->rows_size(), 4);
  EXPECT_EQ(page->rows(2).tuning().problem_text(), SampleTuning(3).key.problem_text);
  EXPECT_EQ(page->rows(2).id().sequence(), 3);
  EXPECT_EQ(store->GetOutboxStatus()->outbox_depth(), 4);
  EXPECT_EQ(store->GetOutboxStatus()->release(), 5);
  EXPECT_THAT(store->Check()->findings(), IsEmpty());
}

TEST_F(DatabaseFileTest, ADatabaseOfSchemaVersionOneHasTheSchemaOfANewOne) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v1.sql"));
  auto migrated = Open();
  ASSERT_NE(migrated, nullptr);
  ASSERT_TRUE(migrated->Close().ok());
  auto options = Options();
  options.state_dir = folder_.File("fresh");
  auto fresh = Open(options);
  ASSERT_NE(fresh, nullptr);
  ASSERT_TRUE(fresh->Close().ok());
  EXPECT_EQ(Schema(DatabasePath()), Schema(folder_.File("fresh/convtune.db")));
}

TEST(AllMigrationsTest, TheListHasNoGap) {
  int expected = 1;
  for (const Migration& migration : AllMigrations()) {
    EXPECT_EQ(migration.version, expected++) << migration.name;
  }
  EXPECT_GT(expected, 1);
}

TEST_F(DatabaseFileTest, ASecondVersionIsMadeOfTheFirstWithItsRows) {
  Fill(2);
  {
    auto file = OpenDatabaseFile(FileOptions(migrations_));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*file->reader->UserVersion(), 2);
    EXPECT_EQ(*file->reader->QueryInt("SELECT COUNT(*) FROM second"), 2);
    ASSERT_TRUE(file->writer->Checkpoint(/*truncate=*/true).ok());
  }
  // It leaves compatible_version, so this program can use the result.
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(*store->GetTuning(SampleTuning(2).key), SampleTuning(2));
}

TEST_F(DatabaseFileTest, ACopyOfAnOlderVersionIsKeptBeforeItIsMigratedAndSaid) {
  Fill(2);
  std::filesystem::permissions(DatabasePath(), std::filesystem::perms(0600));
  ASSERT_TRUE(OpenDatabaseFile(FileOptions(migrations_)).ok());
  const std::string copy = DatabasePath() + ".schema-1";
  EXPECT_THAT(notices_, ElementsAre(AllOf(HasSubstr("schema version 1 to 2"), HasSubstr(copy))));
  EXPECT_EQ(std::filesystem::status(copy).permissions(), std::filesystem::perms(0600));
  EXPECT_THAT(folder_.Names(), Not(Contains(HasSubstr("partial"))));
  // Going back: the copy takes the database's place.
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(DatabasePath() + suffix);
  std::filesystem::rename(copy, DatabasePath());
  notices_.clear();
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->SchemaVersion(), 1);
  EXPECT_EQ(*store->GetTuning(SampleTuning(2).key), SampleTuning(2));
  EXPECT_THAT(store->Check()->findings(), IsEmpty());
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(DatabaseFileTest, ACopyThatIsThereStaysAsItIs) {
  Fill(1);
  const std::string copy = DatabasePath() + ".schema-1";
  WriteWholeFile(copy, "of an earlier day");
  auto file = OpenDatabaseFile(FileOptions(migrations_));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->reader->UserVersion(), 2);
  EXPECT_EQ(ReadWholeFile(copy), "of an earlier day");
  EXPECT_THAT(notices_, ElementsAre(AllOf(HasSubstr("stays"), HasSubstr(copy))));
}

TEST_F(DatabaseFileTest, NothingIsCopiedWhereNothingIsMigrated) {
  Fill(1);
  ASSERT_NE(Open(), nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_THAT(folder_.Names(), Not(Contains(HasSubstr("schema-"))));
}

TEST_F(DatabaseFileTest, AnOlderSchemaThatCannotBeWrittenIsUnavailable) {
  Fill(1);
  DatabaseFileOptions options = FileOptions(migrations_);
  options.read_only = true;
  const absl::Status status = OpenDatabaseFile(options).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("schema version 1"), HasSubstr("migrated to 2")));
}

}  // namespace
}  // namespace convtune::db::sqlite
