#include "db/bundle/bundle_codec.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OutboxTest : public OpenStoreTest {
 protected:
  void Put(int n) { OpenStoreTest::Put(SampleTuning(n)); }
  void PutOf(int n, Origin origin) {
    Tuning tuning = SampleTuning(n);
    tuning.origin = origin;
    OpenStoreTest::Put(tuning);
  }
  v1::ReadOutboxResponse Read(size_t limit = 100, size_t bytes = 1 << 20) {
    auto page = store_->ReadOutbox(limit, bytes);
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? *std::move(page) : v1::ReadOutboxResponse();
  }
  static google::protobuf::RepeatedPtrField<v1::OutboxId> Ids(const v1::ReadOutboxResponse& page) {
    google::protobuf::RepeatedPtrField<v1::OutboxId> ids = page.void_ids();
    for (const v1::OutboxRow& row : page.rows()) *ids.Add() = row.id();
    return ids;
  }
  static std::vector<std::string> Problems(const v1::ReadOutboxResponse& page) {
    std::vector<std::string> problems;
    for (const v1::OutboxRow& row : page.rows()) problems.push_back(row.tuning().problem_text());
    return problems;
  }
  static std::string Problem(int n) { return SampleTuning(n).key.problem_text; }
};

TEST_F(OutboxTest, ATuningOfThisNodeIsInItWithoutSamples) {
  Put(1);
  const v1::ReadOutboxResponse page = Read();
  ASSERT_THAT(page.rows(), SizeIs(1));
  const v1::OutboxRow& row = page.rows(0);
  const Tuning tuning = SampleTuning(1);
  EXPECT_EQ(row.tuning().SerializeAsString(),
            bundle::ToBundleTuning(tuning, 1, /*with_samples=*/false).SerializeAsString());
  EXPECT_EQ(
      row.environment().SerializeAsString(),
      bundle::ToBundleEnvironment(1, SampleEnvironment(), tuning.provenance).SerializeAsString());
  EXPECT_FALSE(row.relayed());
  EXPECT_FALSE(page.more());
}

TEST_F(OutboxTest, WhatCameFromElsewhereIsNotInIt) {
  for (const Origin origin : {Origin::kImported, Origin::kFleet}) PutOf(1, origin);
  EXPECT_THAT(Read().rows(), IsEmpty());
}

TEST_F(OutboxTest, ATuningThatWasNotCommittedIsNotInIt) {
  ASSERT_FALSE(store_->PutTunings(SourceOf(2, absl::AbortedError("no"))).ok());
  EXPECT_THAT(Read().rows(), IsEmpty());
  EXPECT_EQ(store_->GetOutboxStatus()->last_sequence(), 0);
}

TEST_F(OutboxTest, GivesTheOldestFirstAndSaysIfThereIsMore) {
  Put(3);
  Put(1);
  Put(2);
  EXPECT_THAT(Problems(Read(2)), ElementsAre(Problem(3), Problem(1)));
  EXPECT_TRUE(Read(2).more());
  EXPECT_FALSE(Read(3).more());
}

TEST_F(OutboxTest, GivesNoMoreThanThereIsRoomForButOne) {
  Put(1);
  Put(2);
  Put(3);
  const size_t two = Read(2).ByteSizeLong();
  EXPECT_THAT(Problems(Read(100, two + 1)), ElementsAre(Problem(1), Problem(2)));
  EXPECT_TRUE(Read(100, two + 1).more());
  EXPECT_THAT(Problems(Read(100, 1)), ElementsAre(Problem(1)));
}

TEST_F(OutboxTest, ANewerTuningOfAKeyTakesThePlaceOfTheOlder) {
  Put(1);
  Put(2);
  Put(1);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2), Problem(1)));
  EXPECT_EQ(Read().rows(1).id().sequence(), 3);
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
  EXPECT_THAT(Read().rows(), SizeIs(1));
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 1);
}

TEST_F(OutboxTest, EachStartHasAnEpochOfItsOwnAndKeepsWhatWaits) {
  Put(1);
  const v1::OutboxId first = Read().rows(0).id();
  Reopen();
  Put(2);
  const v1::ReadOutboxResponse page = Read();
  ASSERT_THAT(page.rows(), SizeIs(2));
  EXPECT_EQ(page.rows(0).id().SerializeAsString(), first.SerializeAsString());
  EXPECT_NE(page.rows(1).id().epoch(), first.epoch());
  EXPECT_EQ(page.rows(1).id().sequence(), 2);
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
  const v1::ReadOutboxResponse page = Read();
  EXPECT_THAT(Problems(page), ElementsAre(Problem(2)));
  ASSERT_THAT(page.void_ids(), SizeIs(1));
  ASSERT_TRUE(store_->AckOutbox(Ids(page)).ok());
  EXPECT_EQ(store_->GetOutboxStatus()->outbox_depth(), 0);
}

TEST_F(OutboxTest, RequeuePutsInWhatIsNotInAlready) {
  Put(1);
  Put(2);
  PutOf(3, Origin::kFleet);
  ASSERT_TRUE(store_->AckOutbox(Ids(Read(1))).ok());
  PutOf(4, Origin::kImported);
  EXPECT_EQ(*store_->RequeueOutbox(false), 1);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2), Problem(1)));
  EXPECT_EQ(*store_->RequeueOutbox(true), 1);
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(2), Problem(1), Problem(3)));
}

TEST_F(OutboxTest, KnowsWhichKeysWait) {
  Put(1);
  EXPECT_TRUE(*store_->WaitsForFleet(SampleTuning(1).key));
  EXPECT_FALSE(*store_->WaitsForFleet(SampleTuning(2).key));
}

TEST_F(OutboxTest, KnowsTheEpochOfWhatWasAcknowledgedLast) {
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), 0);
  Put(1);
  Put(2);
  const int64_t first = store_->GetOutboxStatus()->epoch();
  ASSERT_TRUE(store_->AckOutbox(Ids(Read(1))).ok());
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), first);
  Reopen();
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), first);
  Put(3);
  ASSERT_TRUE(store_->AckOutbox(Ids(Read())).ok());
  EXPECT_EQ(store_->GetOutboxStatus()->acknowledged_epoch(), store_->GetOutboxStatus()->epoch());
  EXPECT_NE(store_->GetOutboxStatus()->acknowledged_epoch(), first);
}

TEST_F(OutboxTest, KeepsTheFleetsReleaseOverAReopen) {
  EXPECT_EQ(store_->GetOutboxStatus()->release(), 0);
  ASSERT_TRUE(store_->SetFleetRelease(7).ok());
  Reopen();
  EXPECT_EQ(store_->GetOutboxStatus()->release(), 7);
}

TEST_F(OutboxTest, ADamagedRowIsVoidAndTold) {
  Put(1);
  Put(2);
  Reopen("UPDATE outbox SET epoch = epoch + 1 WHERE sequence = 1");
  const v1::ReadOutboxResponse page = Read();
  EXPECT_THAT(Problems(page), ElementsAre(Problem(2)));
  EXPECT_THAT(page.void_ids(), SizeIs(1));
  EXPECT_THAT(notices_, SizeIs(1));
}

TEST_F(OutboxTest, ARowWhoseEnvironmentIsDamagedOrMissingIsVoidAndTold) {
  Put(1);
  Put(2);
  for (const char* damage :
       {"UPDATE environments SET sm_count = 1",
        "PRAGMA foreign_keys = OFF; DELETE FROM environments; PRAGMA foreign_keys = ON"}) {
    SCOPED_TRACE(damage);
    Reopen(damage);
    notices_.clear();
    const v1::ReadOutboxResponse page = Read();
    EXPECT_THAT(page.rows(), IsEmpty());
    EXPECT_THAT(page.void_ids(), SizeIs(2));
    EXPECT_THAT(notices_, ElementsAre(HasSubstr(Problem(1)), HasSubstr(Problem(2))));
  }
}

TEST_F(OutboxTest, ASequenceThatWentBackCostsNoRow) {
  Put(1);
  Put(2);
  const v1::ReadOutboxResponse before = Read();
  Reopen("UPDATE meta SET value = 0 WHERE key = 'outbox_sequence'");
  const absl::Status status = store_->PutTuning(SampleTuning(3), SampleEnvironment());
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(Ids(Read())[0].SerializeAsString(), Ids(before)[0].SerializeAsString());
  EXPECT_THAT(Problems(Read()), ElementsAre(Problem(1), Problem(2)));
}

}  // namespace
}  // namespace convtune::db::store
