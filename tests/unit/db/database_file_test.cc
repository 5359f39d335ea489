// Whose a file is, and its schema.
#include "db/database_file.h"

#include "db/migrator.h"
#include "db/tables.h"
#include "tests/unit/db/sample_releases.h"
#include "tests/unit/db/store_fixture.h"

namespace convtune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DatabaseFileTest : public StoreTest {
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
};

TEST_F(DatabaseFileTest, RefusesAnotherApplicationsDatabaseAndLeavesIt) {
  Run("CREATE TABLE t (x); PRAGMA application_id=7");
  const std::string before = ReadWholeFile(DatabasePath());
  const absl::Status status = SqliteTuningStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another application"));
  EXPECT_EQ(ReadWholeFile(DatabasePath()), before);
  EXPECT_THAT(folder_.Names(), ElementsAre("convtune.db", "convtune.lock"));
}

TEST_F(DatabaseFileTest, RefusesANewerSchemaNamingBothVersionsAndLeavesIt) {
  Fill(1);
  Run("PRAGMA user_version=99; UPDATE meta SET value=98 WHERE key='compatible_version'");
  const std::string before = ReadWholeFile(DatabasePath());
  const absl::Status status = SqliteTuningStore::Open(Options()).status();
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
  EXPECT_TRUE(absl::IsUnavailable(SqliteTuningStore::Open(Options()).status()));
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
  EXPECT_THAT(*store->ListEnvironments(), ElementsAre(SampleEnvironment()));
  EXPECT_THAT(*store->ListPins(), ElementsAre(SamplePin(1)));
  const QuarantineEntry entry{SampleTuning(1).key,        EngineConfig{34, {}},
                              QuarantineReason::kCrashed, "illegal address",
                              absl::FromUnixSeconds(7),   {}};
  EXPECT_THAT(*store->ListQuarantine(), ElementsAre(entry));
  EXPECT_THAT(store->Check()->problems, IsEmpty());
}

TEST_F(DatabaseFileTest, OpensADatabaseOfSchemaVersionTwoWithItsRows) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v2.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(store->SchemaVersion(), LatestVersion(AllMigrations()));
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_THAT(*store->ListPins(), ElementsAre(SamplePin(1)));
  Release canary = SampleRelease(2);
  canary.state = ReleaseState::kCanary;
  canary.canary_permille = 50;
  EXPECT_THAT(*store->ListReleases(), ElementsAre(SampleRelease(1), canary));
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(1).key, 1), SamplePortfolio(1, 5));
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(1).key, 2), SamplePortfolio(1, 9, 2));
  EXPECT_EQ(*store->GetPortfolio(SampleTuning(2).key, 2), NoChoice(2, 2));
  EXPECT_THAT(*store->ListWanted(), ElementsAre(SampleWanted(3)));
  EXPECT_THAT(store->Check()->problems, IsEmpty());
}

TEST_F(DatabaseFileTest, OpensADatabaseOfSchemaVersionThreeWithItsRows) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v3.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_EQ(*store->GetTuning(SampleTuning(3).key), SampleMeasuredTuning(3));
  EXPECT_THAT(*store->ListPins(), ElementsAre(SamplePin(1)));
  EXPECT_THAT(store->Check()->problems, IsEmpty());
}

TEST_F(DatabaseFileTest, OpensADatabaseOfSchemaVersionFourWithItsRows) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v4.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  const auto page = store->ReadOutbox(10);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->entries.size(), 3U);
  EXPECT_EQ(page->entries[2].tuning.key, SampleTuning(3).key);
  EXPECT_EQ(page->entries[2].id.sequence, 3);
  EXPECT_EQ(store->GetOutboxStatus()->depth, 3);
  EXPECT_EQ(store->GetOutboxStatus()->fleet_release, 5);
  EXPECT_THAT(store->Check()->problems, IsEmpty());
}

TEST_F(DatabaseFileTest, OpensADatabaseOfSchemaVersionFiveWithItsRows) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v5.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_EQ(*store->GetTuning(SampleTuning(3).key), SampleMeasuredTuning(3));
  EXPECT_EQ(store->GetOutboxStatus()->depth, 3);
  EXPECT_THAT(store->Check()->problems, IsEmpty());
}

TEST_F(DatabaseFileTest, OpensADatabaseOfSchemaVersionSixWithItsRows) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v6.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_EQ(*store->GetTuning(SampleTuning(4).key), SampleIncompleteTuning(4));
  const QuarantineEntry crashed{SampleTuning(1).key,        EngineConfig{34, {}},
                                QuarantineReason::kCrashed, "illegal address",
                                absl::FromUnixSeconds(7),   {}};
  const QuarantineEntry hung{SampleTuning(1).key,
                             LegacyAlgorithm{1, 2},
                             QuarantineReason::kHung,
                             "hung with a budget of 2s: no reply",
                             absl::FromUnixSeconds(8),
                             absl::Seconds(2),
                             1};
  EXPECT_THAT(*store->ListQuarantine(), ::testing::UnorderedElementsAre(crashed, hung));
  EXPECT_THAT(store->Check()->problems, IsEmpty());
}

TEST_F(DatabaseFileTest, SentencesOfAnOlderDatabaseBecomeNumbers) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v5.sql"));
  // As version 5 wrote them: tuning 1 could not be judged, 2 is damaged.
  {
    auto database = Database::Open({.path = DatabasePath()});
    ASSERT_TRUE(database.ok());
    const Table tunings{"tunings",
                        {TuningTable().columns.begin(), std::prev(TuningTable().columns.end())}};
    constexpr char kWords[] = "results could not be judged: 5 of 5 candidates differ";
    int64_t checksum = 0;
    {
      auto row = (*database)->Prepare("SELECT " + tunings.SelectList("t") +
                                      " FROM tunings t WHERE tuning_id = 1");
      ASSERT_TRUE(row.ok() && *row->Step());
      RowEncoding encoding("tunings");
      for (size_t column = 0; column < tunings.columns.size(); ++column) {
        if (tunings.columns[column] == "incomplete_reason") {
          encoding.Text(kWords);
        } else if (tunings.columns[column] == "evidence") {
          encoding.Int(static_cast<int>(Evidence::kIncomplete));
        } else {
          encoding.Column(*row, static_cast<int>(column));
        }
      }
      checksum = encoding.Checksum();
    }
    const std::string set = std::string("UPDATE tunings SET evidence = 30, incomplete_reason = '") +
                            kWords + "', checksum = " + std::to_string(checksum) +
                            " WHERE tuning_id = 1";
    ASSERT_TRUE((*database)->Execute(set.c_str()).ok());
    RowEncoding hung("quarantine");
    const std::string problem = SampleTuning(2).key.problem_text;
    hung.Int(1);
    hung.Text(problem);
    hung.Text("legacy:algo1,math2");
    hung.Text("hung with a budget of 1.5s: no reply");
    hung.Int(9);
    const std::string insert = "INSERT INTO quarantine VALUES (1, '" + problem +
                               "', 'legacy:algo1,math2', 'hung with a budget of 1.5s: no reply', "
                               "9, " +
                               std::to_string(hung.Checksum()) + "), (1, '" + problem +
                               "', 'graph:eng1', 'damaged', 9, 0)";
    ASSERT_TRUE((*database)->Execute(insert.c_str()).ok());
    ASSERT_TRUE((*database)->Execute("UPDATE tunings SET elapsed_us = 1 WHERE tuning_id = 2").ok());
    ASSERT_TRUE((*database)->CheckpointTruncate().ok());
    ASSERT_TRUE((*database)->CloseAndRemoveLog().ok());
  }
  auto store = Open();
  ASSERT_NE(store, nullptr);
  const Tuning unjudged = store->GetTuning(SampleTuning(1).key).value();
  EXPECT_EQ(unjudged.incomplete, ReasonBit(IncompleteReason::kUnjudged));
  EXPECT_EQ(unjudged.evidence, Evidence::kHeuristic);
  EXPECT_TRUE(absl::IsDataLoss(store->GetTuning(SampleTuning(2).key).status()));
  EXPECT_EQ(*store->GetTuning(SampleTuning(3).key), SampleMeasuredTuning(3));
  const auto quarantine = store->ListQuarantine().value();
  ASSERT_EQ(quarantine.size(), 2U);
  for (const QuarantineEntry& entry : quarantine) {
    const bool hung = entry.key == SampleTuning(2).key;
    EXPECT_EQ(entry.reason, hung ? QuarantineReason::kHung : QuarantineReason::kCrashed);
    EXPECT_EQ(entry.hang_budget, hung ? absl::Milliseconds(1500) : absl::ZeroDuration());
    EXPECT_EQ(entry.message, hung ? "hung with a budget of 1.5s: no reply" : "illegal address");
    EXPECT_EQ(entry.checker_version, 0);
  }
}

TEST_F(DatabaseFileTest, DamagedRowsOfAnOlderDatabaseCostWhatTheyCostBefore) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v4.sql"));
  Run("UPDATE candidates SET median_us = 0.5 WHERE tuning_id = 2 AND position = 1;"
      "UPDATE samples SET samples = zeroblob(84) WHERE tuning_id = 1 AND position = 1");
  auto store = Open();
  ASSERT_NE(store, nullptr);
  std::vector<std::string> corrupt;
  EXPECT_EQ(All(*store, &corrupt).size(), 2U);
  EXPECT_THAT(corrupt, ElementsAre(HasSubstr("tuning_candidates row (tuning 2, ")));
  Tuning first = SampleTuning(1);
  first.candidates[1].samples_us.clear();
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), first);
}

TEST_F(DatabaseFileTest, TheOutboxOfAnOlderDatabaseIsEmptyUntilItIsFilled) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v3.sql"));
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(store->ReadOutbox(10)->entries, IsEmpty());
  EXPECT_EQ(*store->RequeueOutbox(), 3);
  EXPECT_EQ(store->ReadOutbox(10)->entries.size(), 3U);
}

class MigrationTest : public DatabaseFileTest, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(FromEveryVersion, MigrationTest, ::testing::Values(1, 2, 3, 4, 5, 6));

TEST_P(MigrationTest, AMigratedDatabaseHasTheSchemaOfANewOne) {
  Run(ReadWholeFile(CONVTUNE_TEST_DATA "/db/schema_v" + std::to_string(GetParam()) + ".sql"));
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

}  // namespace
}  // namespace convtune
