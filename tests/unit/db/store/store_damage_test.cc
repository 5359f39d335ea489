// Damaged rows and damaged files.
#include "absl/strings/str_cat.h"
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

class StoreDamageTest : public OpenStoreTest {
 protected:
  // Exchanges the first two entries of an index that has one page. A binary search for what
  // the second one has then sees it, and ends at the first.
  void ExchangeFirstEntries(const std::string& index) {
    ASSERT_TRUE(store_->Close().ok());
    store_.reset();
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
    store_ = Open();
    ASSERT_NE(store_, nullptr);
  }
};

TEST_F(StoreDamageTest, ATuningWithAFlippedBitOrAChangedRecordIsLeftOutAlone) {
  for (const char* change :
       {"tune_time_us = tune_time_us + 1",
        "record = CAST(substr(record, 1, 40) || x'01' || substr(record, 42) AS BLOB)"}) {
    SCOPED_TRACE(change);
    PutSamples(3);
    Reopen(absl::StrCat("UPDATE tunings SET ", change, " WHERE problem_text LIKE '%100002'"));
    EXPECT_THAT(Sound(),
                ElementsAre(WithoutSamples(SampleTuning(1)), WithoutSamples(SampleTuning(3))));
    EXPECT_THAT(corrupt_, ElementsAre(StartsWith("tunings row")));
    EXPECT_TRUE(absl::IsDataLoss(store_->GetTuning(SampleTuning(2).key).status()));
    EXPECT_THAT(store_->Check()->findings(), Not(IsEmpty()));
  }
}

TEST_F(StoreDamageTest, RecordsOfEachOtherLeaveBothOut) {
  PutSamples(2);
  Reopen(
      "CREATE TEMP TABLE old AS SELECT tuning_id, record FROM tunings;"
      "UPDATE tunings SET record = (SELECT record FROM old WHERE old.tuning_id = 3 - "
      "tunings.tuning_id)");
  EXPECT_THAT(Sound(), IsEmpty());
  EXPECT_THAT(corrupt_, SizeIs(2));
  EXPECT_THAT(store_->Check()->findings(), SizeIs(2));
}

TEST_F(StoreDamageTest, AnIndexThatLeadsToAnotherTuningIsDamage) {
  PutSamples(3);
  ExchangeFirstEntries("sqlite_autoindex_tunings_1");
  const absl::Status status = store_->GetTuning(SampleTuning(1).key).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("an index leads to it for another key"));
  EXPECT_EQ(*store_->GetTuning(SampleTuning(3).key), SampleTuning(3));
  EXPECT_THAT(store_->Check()->findings(), Not(IsEmpty()));
}

TEST_F(StoreDamageTest, AnIndexThatLeadsToAnotherEnvironmentIsDamage) {
  Tuning tuning = SampleTuning(1);
  Environment environment = SampleEnvironment();
  const auto enter = [&](int sms) {
    environment.sm_count = sms;
    tuning.key.environment_text = environment.ToText();
  };
  for (const int sms : {101, 102, 103}) {
    enter(sms);
    ASSERT_TRUE(store_->PutTuning(tuning, environment).ok());
    Portfolio portfolio = SamplePortfolio(1, sms, sms);
    portfolio.key = tuning.key;
    ASSERT_TRUE(store_->PutRelease(SampleRelease(sms), {portfolio}).ok());
  }
  ExchangeFirstEntries("sqlite_autoindex_environments_1");
  enter(101);
  EXPECT_TRUE(absl::IsDataLoss(store_->GetTuning(tuning.key).status()));
  EXPECT_TRUE(absl::IsDataLoss(store_->GetPortfolio(tuning.key, 103).status()));
  EXPECT_TRUE(absl::IsDataLoss(store_->PutTuning(tuning, environment)));
  enter(103);
  EXPECT_EQ(*store_->GetTuning(tuning.key), tuning);
  EXPECT_TRUE(store_->GetPortfolio(tuning.key, 103).ok());
}

TEST_F(StoreDamageTest, AnIndexMovesNoTuningToAnotherEnvironment) {
  std::vector<Tuning> tunings;
  for (const int n : {1, 2}) {
    Environment environment = SampleEnvironment();
    environment.sm_count = 100 + n;
    tunings.push_back(SampleTuning(n));
    tunings.back().key.environment_text = environment.ToText();
    ASSERT_TRUE(store_->PutTuning(tunings.back(), environment).ok());
  }
  ExchangeFirstEntries("sqlite_autoindex_tunings_1");
  EXPECT_THAT(Sound(), ElementsAre(WithoutSamples(tunings[1])));
  EXPECT_THAT(corrupt_, ElementsAre(HasSubstr("an index leads to it for another key")));
}

TEST_F(StoreDamageTest, DamagedSamplesCostTheFullTuningButNotTheIndex) {
  PutSamples(1);
  Reopen("UPDATE tuning_samples SET record = zeroblob(84)");
  EXPECT_THAT(AllTunings(*store_), SizeIs(1));
  EXPECT_TRUE(absl::IsDataLoss(store_->GetTuning(SampleTuning(1).key).status()));
  EXPECT_THAT(store_->Check()->findings(), ElementsAre(HasSubstr("tuning_samples row")));
}

TEST_F(StoreDamageTest, ADamagedEnvironmentIsMendedByTheNextTuning) {
  PutSamples(1);
  Reopen("UPDATE environments SET sm_count = 1");
  EXPECT_THAT(Sound(), IsEmpty());
  EXPECT_THAT(corrupt_, Not(IsEmpty()));
  Put(SampleTuning(2));
  EXPECT_THAT(AllTunings(*store_), SizeIs(2));
}

TEST_F(StoreDamageTest, ADamagedPinIsLeftOutAndNoticed) {
  ASSERT_TRUE(store_->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(store_->PutPin(SamplePin(2)).ok());
  Reopen("UPDATE pins SET candidate = 'legacy:algo0,math0' WHERE problem_text LIKE '%100001'");
  EXPECT_THAT(*store_->ListPins(), ElementsAre(SamplePin(2)));
  EXPECT_THAT(notices_, ElementsAre(StartsWith("pins row")));
}

TEST_F(StoreDamageTest, ADamagedBanIsLeftOutAndNoticed) {
  ASSERT_TRUE(store_->AddBan(SampleBan()).ok());
  ASSERT_TRUE(store_->AddBan(SampleBan()).ok());
  Reopen("UPDATE bans SET candidate = 'graph:*' WHERE ban_number = 1");
  EXPECT_THAT(*store_->ListBans(), SizeIs(1));
  EXPECT_THAT(notices_, ElementsAre(StartsWith("bans row (bans/1)")));
}

TEST_F(StoreDamageTest, ABanSequenceThatWentBackCostsNoBan) {
  ASSERT_TRUE(store_->AddBan(SampleBan()).ok());
  const std::vector<Ban> before = *store_->ListBans();
  Reopen("UPDATE meta SET value = 0 WHERE key = 'ban_sequence'");
  Ban other = SampleBan();
  other.reason = "another";
  const absl::Status status = store_->AddBan(other).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(*store_->ListBans(), before);
}

TEST_F(StoreDamageTest, EachPinAndQuarantineEntryOfADamagedEnvironmentIsNoticed) {
  ASSERT_TRUE(store_->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(store_->PutPin(SamplePin(2)).ok());
  ASSERT_TRUE(store_->PutQuarantine(SampleQuarantine()).ok());
  Reopen("UPDATE environments SET sm_count = 1");
  const auto told = [](const std::string& table, int n) {
    return table + " row (" + SampleTuning(n).key.problem_text + "): its environment is damaged";
  };
  EXPECT_THAT(*store_->ListPins(), IsEmpty());
  EXPECT_THAT(notices_,
              ElementsAre(StartsWith("environments row"), told("pins", 1), told("pins", 2)));
  notices_.clear();
  EXPECT_THAT(*store_->ListQuarantine(), IsEmpty());
  EXPECT_THAT(notices_, ElementsAre(StartsWith("environments row"), told("quarantine", 1)));
}

TEST_F(StoreDamageTest, APutReplacesADamagedTuning) {
  PutSamples(1);
  Reopen("UPDATE tunings SET origin = 3");
  Put(SampleTuning(1));
  EXPECT_EQ(*store_->GetTuning(SampleTuning(1).key), SampleTuning(1));
  EXPECT_THAT(store_->Check()->findings(), IsEmpty());
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
    EXPECT_THAT(AllTunings(*store), IsEmpty());
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
      *store, [](const Tuning&) {}, [](const std::string&) {});
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
