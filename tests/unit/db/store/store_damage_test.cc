// Damaged rows and damaged files.
#include "tests/unit/db/for_each_tuning.h"
#include "tests/unit/db/sample_releases.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class StoreDamageTest : public StoreTest {
 protected:
  // Exchanges the first two entries of an index that has one page. A binary search for what
  // the second one has then sees it, and ends at the first.
  void ExchangeFirstEntries(const std::string& index) {
    int64_t root = 0;
    {
      auto database = sqlite::Database::Open({.path = DatabasePath()});
      ASSERT_TRUE(database.ok()) << database.status();
      root = (*database)
                 ->QueryInt("SELECT rootpage FROM sqlite_schema WHERE name = '" + index + "'")
                 .value();
      ASSERT_TRUE((*database)->CloseAndRemoveLog().ok());
    }
    std::string content = ReadWholeFile(DatabasePath());
    constexpr size_t kPageBytes = 4096;
    constexpr size_t kLeafHeadBytes = 8;
    const size_t places = static_cast<size_t>(root - 1) * kPageBytes + kLeafHeadBytes;
    std::swap(content[places], content[places + 2]);
    std::swap(content[places + 1], content[places + 3]);
    WriteWholeFile(DatabasePath(), content);
  }

  // Damages tuning 2 of three with `sql`; expects it alone to be left out, and
  // the report to name `table`.
  void ExpectTuningTwoLeftOut(const std::string& sql, const std::string& table) {
    Fill(3);
    Run(sql);
    auto store = Open();
    ASSERT_NE(store, nullptr);
    std::vector<std::string> corrupt;
    const std::vector<Tuning> tunings = All(*store, &corrupt);
    EXPECT_THAT(tunings,
                ElementsAre(WithoutSamples(SampleTuning(1)), WithoutSamples(SampleTuning(3))));
    EXPECT_THAT(corrupt, ElementsAre(StartsWith(table + " row")));
    EXPECT_TRUE(absl::IsDataLoss(store->GetTuning(SampleTuning(2).key).status()));
    EXPECT_THAT(store->Check()->findings(), Not(IsEmpty()));
  }
};

TEST_F(StoreDamageTest, AFlippedBitInATuningLeavesItOut) {
  ExpectTuningTwoLeftOut("UPDATE tunings SET tune_time_us = tune_time_us + 1 WHERE tuning_id = 2",
                         "tunings");
}

TEST_F(StoreDamageTest, AChangedRecordLeavesItsTuningOut) {
  ExpectTuningTwoLeftOut(
      "UPDATE tunings SET record = CAST(substr(record, 1, 40) || x'01' || substr(record, 42) AS "
      "BLOB) WHERE tuning_id = 2",
      "tunings");
}

TEST_F(StoreDamageTest, RecordsOfEachOtherLeaveBothOut) {
  Fill(2);
  Run("CREATE TEMP TABLE old AS SELECT tuning_id, record FROM tunings;"
      "UPDATE tunings SET record = (SELECT record FROM old WHERE old.tuning_id = 3 - "
      "tunings.tuning_id)");
  auto store = Open();
  std::vector<std::string> corrupt;
  EXPECT_THAT(All(*store, &corrupt), IsEmpty());
  EXPECT_THAT(corrupt, SizeIs(2));
  EXPECT_THAT(store->Check()->findings(), SizeIs(2));
}

TEST_F(StoreDamageTest, AnIndexThatLeadsToAnotherTuningIsDamage) {
  Fill(3);
  ExchangeFirstEntries("sqlite_autoindex_tunings_1");
  auto store = Open();
  const absl::Status status = store->GetTuning(SampleTuning(1).key).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("an index leads to it for another key"));
  EXPECT_EQ(*store->GetTuning(SampleTuning(3).key), SampleTuning(3));
  EXPECT_THAT(store->Check()->findings(), Not(IsEmpty()));
}

TEST_F(StoreDamageTest, AnIndexThatLeadsToAnotherEnvironmentIsDamage) {
  Tuning tuning = SampleTuning(1);
  Environment environment = SampleEnvironment();
  const auto enter = [&](int sms) {
    environment.sm_count = sms;
    tuning.key.environment_text = environment.ToText();
  };
  {
    auto store = Open();
    for (const int sms : {101, 102, 103}) {
      enter(sms);
      ASSERT_TRUE(store->PutTuning(tuning, environment).ok());
      Portfolio portfolio = SamplePortfolio(1, sms, sms);
      portfolio.key = tuning.key;
      ASSERT_TRUE(store->PutRelease(SampleRelease(sms), {portfolio}).ok());
    }
    ASSERT_TRUE(store->Close().ok());
  }
  ExchangeFirstEntries("sqlite_autoindex_environments_1");
  auto store = Open();
  enter(101);
  EXPECT_TRUE(absl::IsDataLoss(store->GetTuning(tuning.key).status()));
  EXPECT_TRUE(absl::IsDataLoss(store->GetPortfolio(tuning.key, 103).status()));
  EXPECT_TRUE(absl::IsDataLoss(store->PutTuning(tuning, environment)));
  enter(103);
  EXPECT_EQ(*store->GetTuning(tuning.key), tuning);
  EXPECT_TRUE(store->GetPortfolio(tuning.key, 103).ok());
}

TEST_F(StoreDamageTest, AnIndexMovesNoTuningToAnotherEnvironment) {
  std::vector<Tuning> tunings;
  {
    auto store = Open();
    for (const int n : {1, 2}) {
      Environment environment = SampleEnvironment();
      environment.sm_count = 100 + n;
      tunings.push_back(SampleTuning(n));
      tunings.back().key.environment_text = environment.ToText();
      ASSERT_TRUE(store->PutTuning(tunings.back(), environment).ok());
    }
    ASSERT_TRUE(store->Close().ok());
  }
  ExchangeFirstEntries("sqlite_autoindex_tunings_1");
  auto store = Open();
  std::vector<std::string> corrupt;
  EXPECT_THAT(All(*store, &corrupt), ElementsAre(WithoutSamples(tunings[1])));
  EXPECT_THAT(corrupt, ElementsAre(HasSubstr("an index leads to it for another key")));
}

TEST_F(StoreDamageTest, DamagedSamplesCostTheFullTuningButNotTheIndex) {
  Fill(1);
  Run("UPDATE tuning_samples SET record = zeroblob(84)");
  auto store = Open();
  std::vector<std::string> corrupt;
  EXPECT_THAT(All(*store, &corrupt), SizeIs(1));
  EXPECT_THAT(corrupt, IsEmpty());
  EXPECT_TRUE(absl::IsDataLoss(store->GetTuning(SampleTuning(1).key).status()));
  EXPECT_THAT(store->Check()->findings(), ElementsAre(HasSubstr("tuning_samples row")));
}

TEST_F(StoreDamageTest, ADamagedEnvironmentIsMendedByTheNextTuning) {
  Fill(1);
  Run("UPDATE environments SET sm_count = 1");
  auto store = Open();
  std::vector<std::string> corrupt;
  EXPECT_THAT(All(*store, &corrupt), IsEmpty());
  EXPECT_THAT(corrupt, Not(IsEmpty()));
  ASSERT_TRUE(store->PutTuning(SampleTuning(2), SampleEnvironment()).ok());
  corrupt.clear();
  EXPECT_THAT(All(*store, &corrupt), SizeIs(2));
  EXPECT_THAT(corrupt, IsEmpty());
}

TEST_F(StoreDamageTest, ADamagedPinIsLeftOutAndNoticed) {
  auto store = Open();
  ASSERT_TRUE(store->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(store->PutPin(SamplePin(2)).ok());
  ASSERT_TRUE(store->Close().ok());
  store.reset();
  Run("UPDATE pins SET candidate = 'legacy:algo0,math0' WHERE problem_text LIKE '%100001'");
  store = Open();
  EXPECT_THAT(*store->ListPins(), ElementsAre(SamplePin(2)));
  EXPECT_THAT(notices_, ElementsAre(StartsWith("pins row")));
}

TEST_F(StoreDamageTest, ADamagedBanIsLeftOutAndNoticed) {
  auto store = Open();
  ASSERT_TRUE(store->AddBan(SampleBan()).ok());
  ASSERT_TRUE(store->AddBan(SampleBan()).ok());
  ASSERT_TRUE(store->Close().ok());
  store.reset();
  Run("UPDATE bans SET candidate = 'graph:*' WHERE ban_number = 1");
  store = Open();
  EXPECT_THAT(*store->ListBans(), SizeIs(1));
  EXPECT_THAT(notices_, ElementsAre(StartsWith("bans row (bans/1)")));
}

TEST_F(StoreDamageTest, ABanSequenceThatWentBackCostsNoBan) {
  auto store = Open();
  ASSERT_TRUE(store->AddBan(SampleBan()).ok());
  const std::vector<Ban> before = *store->ListBans();
  ASSERT_TRUE(store->Close().ok());
  store.reset();
  Run("UPDATE meta SET value = 0 WHERE key = 'ban_sequence'");
  store = Open();
  Ban other = SampleBan();
  other.reason = "another";
  const absl::Status status = store->AddBan(other).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(*store->ListBans(), before);
}

TEST_F(StoreDamageTest, EachPinAndQuarantineEntryOfADamagedEnvironmentIsNoticed) {
  auto store = Open();
  ASSERT_TRUE(store->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(store->PutPin(SamplePin(2)).ok());
  const QuarantineEntry entry{SampleTuning(1).key,        EngineConfig{34, {}},
                              QuarantineReason::kCrashed, "illegal address",
                              absl::FromUnixSeconds(7),   {}};
  ASSERT_TRUE(store->PutQuarantine(entry).ok());
  ASSERT_TRUE(store->Close().ok());
  store.reset();
  Run("UPDATE environments SET sm_count = 1");
  store = Open();
  const auto told = [](const std::string& table, int n) {
    return table + " row (" + SampleTuning(n).key.problem_text + "): its environment is damaged";
  };
  EXPECT_THAT(*store->ListPins(), IsEmpty());
  EXPECT_THAT(notices_,
              ElementsAre(StartsWith("environments row"), told("pins", 1), told("pins", 2)));
  notices_.clear();
  EXPECT_THAT(*store->ListQuarantine(), IsEmpty());
  EXPECT_THAT(notices_, ElementsAre(StartsWith("environments row"), told("quarantine", 1)));
}

TEST_F(StoreDamageTest, APutReplacesADamagedTuning) {
  Fill(1);
  Run("UPDATE tunings SET origin = 3");
  auto store = Open();
  ASSERT_TRUE(store->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  EXPECT_EQ(*store->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_THAT(store->Check()->findings(), IsEmpty());
}

class DamagedFileTest : public StoreTest {
 protected:
  // Opens the damaged file: expects it under its new name, byte for byte, and
  // a fresh store that works.
  void ExpectPutAside() {
    const std::string damaged = ReadWholeFile(DatabasePath());
    auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(ReadWholeFile(folder_.File("convtune.db.corrupt-20260101T000000Z")), damaged);
    EXPECT_THAT(notices_, ElementsAre(HasSubstr("convtune.db.corrupt-20260101T000000Z")));
    std::vector<std::string> corrupt;
    EXPECT_THAT(All(*store, &corrupt), IsEmpty());
    EXPECT_TRUE(store->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  }
};

TEST_F(DamagedFileTest, AFileThatIsNoDatabaseIsPutAside) {
  WriteWholeFile(DatabasePath(), "the quick brown fox");
  ExpectPutAside();
}

TEST_F(DamagedFileTest, WhatIsPutAsideIsListedHoweverTheFolderIsWritten) {
  EXPECT_THAT(sqlite::ListPutAside(DatabasePath()), IsEmpty());
  WriteWholeFile(DatabasePath(), "the quick brown fox");
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(store->ListPutAside(), ElementsAre(HasSubstr("convtune.db.corrupt-")));
  EXPECT_EQ(sqlite::ListPutAside(folder_.File("/convtune.db")).size(), 1U);
}

TEST_F(DamagedFileTest, ATruncatedFileIsPutAside) {
  Fill(20);
  const std::string content = ReadWholeFile(DatabasePath());
  WriteWholeFile(DatabasePath(), content.substr(0, content.size() / 2 / 4096 * 4096));
  ExpectPutAside();
}

TEST_F(DamagedFileTest, ADamagedPageIsFoundAfterAnUncleanStop) {
  Fill(20);
  Run("UPDATE meta SET value = 0 WHERE key = 'clean_shutdown'");
  std::string content = ReadWholeFile(DatabasePath());
  content.replace(content.size() - 4096, 4096, std::string(4096, '\x5a'));
  WriteWholeFile(DatabasePath(), content);
  ExpectPutAside();
}

TEST_F(DamagedFileTest, DamageThatReadingFindsIsLookedAtByTheNextStart) {
  Fill(20);
  std::string content = ReadWholeFile(DatabasePath());
  const size_t page = content.find("nhwc,f16,acc=f32,sms=") / 4096 * 4096;
  content.replace(page, 4096, std::string(4096, '\x5a'));
  WriteWholeFile(DatabasePath(), content);
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(notices_, IsEmpty());
  const absl::Status read = ForEachTuning(
      *store, [](const Tuning&) { return true; }, [](const std::string&) {});
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  ASSERT_TRUE(store->Close().ok());
  store.reset();
  EXPECT_NE(Open(), nullptr);
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("quick_check")));
}

TEST_F(DamagedFileTest, AFileThatIsKnownToBeDamagedIsPutAside) {
  Fill(2);
  SqliteStore::Options options = Options();
  options.damage = "its rows cannot be read";
  EXPECT_NE(Open(std::move(options)), nullptr);
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("(its rows cannot be read)")));
}

TEST_F(DamagedFileTest, AMissingRowThatIsAlwaysThereIsDamage) {
  Fill(2);
  Run("DELETE FROM meta WHERE key = 'clean_shutdown'");
  ExpectPutAside();
}

TEST_F(DamagedFileTest, AVersionThatDoesNotFitTheTablesIsDamage) {
  Fill(2);
  Run("PRAGMA user_version = 0");
  ExpectPutAside();
}

TEST_F(DamagedFileTest, ASecondDamagedFileDoesNotReplaceTheFirst) {
  for (const char* content : {"one", "two"}) {
    WriteWholeFile(DatabasePath(), content);
    EXPECT_NE(Open(), nullptr);
  }
  EXPECT_EQ(ReadWholeFile(folder_.File("convtune.db.corrupt-20260101T000000Z")), "one");
  EXPECT_EQ(ReadWholeFile(folder_.File("convtune.db.corrupt-20260101T000000Z.2")), "two");
}

TEST_F(DamagedFileTest, ALogWithoutItsFileIsPutAside) {
  WriteWholeFile(DatabasePath() + "-wal", "log");
  EXPECT_NE(Open(), nullptr);
  EXPECT_EQ(ReadWholeFile(folder_.File("convtune.db.corrupt-20260101T000000Z-wal")), "log");
}

}  // namespace
}  // namespace convtune::db::store
