#include "db/tuning_store.h"

#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OutboxTest : public StoreTest {
 protected:
  void SetUp() override { store_ = Open(); }

  void Put(int n) { ASSERT_TRUE(store_->PutTuning(SampleTuning(n), SampleEnvironment()).ok()); }
  OutboxPage Read(size_t limit = 100) {
    auto page = store_->ReadOutbox(limit);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? *std::move(page) : OutboxPage();
  }
  static google::protobuf::RepeatedPtrField<v1::OutboxId> Ids(const OutboxPage& page) {
    google::protobuf::RepeatedPtrField<v1::OutboxId> ids(page.void_ids.begin(),
                                                         page.void_ids.end());
    for (const OutboxEntry& entry : page.entries) *ids.Add() = entry.id;
    return ids;
  }
  static std::vector<std::string> Problems(const OutboxPage& page) {
    std::vector<std::string> problems;
    for (const OutboxEntry& entry : page.entries) problems.push_back(entry.tuning.key.problem_text);
    return problems;
  }
  static std::string Problem(int n) { return SampleTuning(n).key.problem_text; }

  std::unique_ptr<SqliteStore> store_;
};

TEST_F(OutboxTest, ATuningOfThisNodeIsInItWithoutSamples) {
  Put(1);
  const OutboxPage page = Read();
  ASSERT_THAT(page.entries, SizeIs(1));
  Tuning expected = SampleTuning(1);
  for (Candidate& candidate : expected.candidates) candidate.samples_ns.clear();
  EXPECT_EQ(page.entries[0].tuning, expected);
  EXPECT_EQ(page.entries[0].environment, SampleEnvironment());
  EXPECT_FALSE(page.more);
}

TEST_F(OutboxTest, WhatCameFromElsewhereIsNotInIt) {
  for (const Origin origin : {Origin::kImported, Origin::kFleet}) {
    Tuning tuning = SampleTuning(1);
    tuning.origin = origin;
    ASSERT_TRUE(store_->PutTuning(tuning, SampleEnvironment()).ok());
  }
  EXPECT_THAT(Read().entries, IsEmpty());
}

TEST_F(OutboxTest, ATuningThatWasNotCommittedIsNotInIt) {
  int given = 0;
  const auto source = [&given]() -> absl::StatusOr<std::optional<TuningRecord>> {
    if (++given > 2) return absl::AbortedError("no");
    return TuningRecord{SampleTuning(given), SampleEnvironment()};
  };
  ASSERT_FALSE(store_->PutTunings(source).ok());
  EXPECT_THAT(Read().entries, IsEmpty());
  EXPECT_EQ(store_->GetOutboxStatus()->last_sequence(), 0);
}

TEST_F(OutboxTest, GivesTheOldestFirstAndSaysIfThereIsMore) {
  Put(3);
  Put(1);
  Put(2);
  EXPECT_THAT(Problems(Read(2)), ElementsAre(Problem(3), Problem(1)));
  EXPECT_TRUE(Read(2).more);
  EXPECT_FALSE(Read(3).more);
}

TEST_F(OutboxTest, ANewerTuningOfAKeyTakesThePlaceOfTheOlder) {
  Put(1);
  Put(2);
  Put(1);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2), Problem(1)));
  EXPECT_EQ(Read().entries[1].id.sequence(), 3);
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_superseded(), 1);
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 2);
}

TEST_F(OutboxTest, WhatWasAcknowledgedIsGone) {
  Put(1);
  Put(2);
  ASSERT_TRUE(store_->AckOutbox(Ids(Read(1))).ok());
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2)));
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 1);
}

TEST_F(OutboxTest, AnAcknowledgementOfAnotherEpochTakesNothing) {
  Put(1);
  auto ids = Ids(Read());
  ids[0].set_epoch(ids[0].epoch() ^ 2);
  ASSERT_TRUE(store_->AckOutbox(ids).ok());
  EXPECT_THAT(Read().entries, SizeIs(1));
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 1);
}

TEST_F(OutboxTest, EachStartHasAnEpochOfItsOwnAndKeepsWhatWaits) {
  Put(1);
  const v1::OutboxId first = Read().entries[0].id;
  ASSERT_TRUE(store_->Close().ok());
  store_.reset();
  store_ = Open();
  Put(2);
  const OutboxPage page = Read();
  ASSERT_THAT(page.entries, SizeIs(2));
  EXPECT_EQ(page.entries[0].id.SerializeAsString(), first.SerializeAsString());
  EXPECT_NE(page.entries[1].id.epoch(), first.epoch());
  EXPECT_EQ(page.entries[1].id.sequence(), 2);
}

TEST_F(OutboxTest, BeyondItsBoundTheOldestGoAndAreCounted) {
  store_.reset();
  auto options = Options();
  options.outbox_limit = 2;
  store_ = Open(options);
  for (int n = 1; n <= 5; ++n) Put(n);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(4), Problem(5)));
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_dropped(), 3);
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 2);
}

TEST_F(OutboxTest, ADeletedTuningLeavesARowThatStandsForNothing) {
  Put(1);
  Put(2);
  ASSERT_TRUE(store_->DeleteTunings({SampleTuning(1).key}).ok());
  const OutboxPage page = Read();
  EXPECT_THAT(Problems(page), ElementsAre(Problem(2)));
  ASSERT_THAT(page.void_ids, SizeIs(1));
  ASSERT_TRUE(store_->AckOutbox(Ids(page)).ok());
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 0);
}

TEST_F(OutboxTest, RequeuePutsInWhatIsNotInAlready) {
  Put(1);
  Put(2);
  Tuning other = SampleTuning(3);
  other.origin = Origin::kFleet;
  ASSERT_TRUE(store_->PutTuning(other, SampleEnvironment()).ok());
  ASSERT_TRUE(store_->AckOutbox(Ids(Read(1))).ok());
  Tuning imported = SampleTuning(4);
  imported.origin = Origin::kImported;
  ASSERT_TRUE(store_->PutTuning(imported, SampleEnvironment()).ok());
  EXPECT_EQ(*store_->RequeueOutbox(false), 1);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2), Problem(1)));
  EXPECT_EQ(*store_->RequeueOutbox(true), 1);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2), Problem(1), Problem(3)));
}

TEST_F(OutboxTest, KnowsWhichKeysWait) {
  Put(1);
  EXPECT_TRUE(*store_->IsInOutbox(SampleTuning(1).key));
  EXPECT_FALSE(*store_->IsInOutbox(SampleTuning(2).key));
}

TEST_F(OutboxTest, KnowsTheEpochOfWhatWasAcknowledgedLast) {
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), 0);
  Put(1);
  Put(2);
  const int64_t first = store_->GetOutboxStatus()->epoch();
  ASSERT_TRUE(store_->AckOutbox(Ids(Read(1))).ok());
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), first);
  store_.reset();
  store_ = Open();
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), first);
  Put(3);
  ASSERT_TRUE(store_->AckOutbox(Ids(Read())).ok());
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), store_->GetOutboxStatus()->epoch());
  EXPECT_NE(store_->GetOutboxStatus()->acknowledged_epoch(), first);
}

TEST_F(OutboxTest, KeepsTheFleetsReleaseOverAReopen) {
  EXPECT_EQ(store_->GetOutboxStatus()->release(), 0);
  ASSERT_TRUE(store_->SetFleetRelease(7).ok());
  store_.reset();
  store_ = Open();
  EXPECT_EQ(store_->GetOutboxStatus()->release(), 7);
}

TEST_F(OutboxTest, ADamagedRowIsVoidAndTold) {
  Put(1);
  Put(2);
  ASSERT_TRUE(store_->Close().ok());
  store_.reset();
  Run("UPDATE outbox SET epoch = epoch + 1 WHERE sequence = 1");
  store_ = Open();
  const OutboxPage page = Read();
  EXPECT_THAT(Problems(page), ElementsAre(Problem(2)));
  EXPECT_THAT(page.void_ids, SizeIs(1));
  EXPECT_THAT(notices_, SizeIs(1));
}

TEST_F(OutboxTest, ARowWhoseEnvironmentIsDamagedOrMissingIsVoidAndTold) {
  Put(1);
  Put(2);
  for (const char* damage :
       {"UPDATE environments SET sm_count = 1",
        "PRAGMA foreign_keys = OFF; DELETE FROM environments; PRAGMA foreign_keys = ON"}) {
    SCOPED_TRACE(damage);
    ASSERT_TRUE(store_->Close().ok());
    store_.reset();
    Run(damage);
    store_ = Open();
    notices_.clear();
    const OutboxPage page = Read();
    EXPECT_THAT(page.entries, IsEmpty());
    EXPECT_THAT(page.void_ids, SizeIs(2));
    EXPECT_THAT(notices_, ElementsAre(HasSubstr(Problem(1)), HasSubstr(Problem(2))));
  }
}

TEST_F(OutboxTest, ASequenceThatWentBackCostsNoRow) {
  Put(1);
  Put(2);
  const OutboxPage before = Read();
  ASSERT_TRUE(store_->Close().ok());
  store_.reset();
  Run("UPDATE meta SET value = 0 WHERE key = 'outbox_sequence'");
  store_ = Open();
  const absl::Status status = store_->PutTuning(SampleTuning(3), SampleEnvironment());
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(Ids(Read())[0].SerializeAsString(), Ids(before)[0].SerializeAsString());
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(1), Problem(2)));
}

}  // namespace
}  // namespace convtune::db::store
