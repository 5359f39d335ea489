// What a SqliteStore promises of tunings, pins, bans and quarantines.
#include <atomic>
#include <limits>
#include <thread>

#include "tests/unit/db/sample_releases.h"
#include "tests/unit/db/store/store_fixture.h"
#include "tests/unit/db/valid_tunings.h"

namespace convtune::db::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using StoredRowsTest = OpenStoreTest;

TEST_F(StoredRowsTest, GivesBackATuningAsItWasPut) {
  Tuning without_candidates = SampleTuning(4);
  without_candidates.candidates.clear();
  const Tuning tunings[] = {SampleTuning(1), SampleMeasuredTuning(2), SampleIncompleteTuning(3),
                            without_candidates};
  for (const Tuning& tuning : tunings) {
    Put(tuning);
    EXPECT_EQ(*store_->GetTuning(tuning.key), tuning);
  }
  Reopen();
  std::vector<Tuning> listed;
  for (const Tuning& tuning : tunings) {
    EXPECT_EQ(*store_->GetTuning(tuning.key), tuning);
    listed.push_back(WithoutSamples(tuning));
  }
  EXPECT_EQ(AllTunings(*store_), listed);
}

TEST_F(StoredRowsTest, GetOfAnAbsentKeyIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(store_->GetTuning(SampleTuning(1).key).status()));
}

TEST_F(StoredRowsTest, PutReplacesAllThatTheKeyHad) {
  Put(SampleMeasuredTuning(1));
  Tuning tuning = SampleTuning(1);
  Put(tuning);
  EXPECT_EQ(*store_->GetTuning(tuning.key), tuning);
  tuning.candidates.resize(1);
  tuning.evidence = Evidence::kHeuristic;
  tuning.tune_time -= absl::Hours(24);
  Put(tuning);
  EXPECT_EQ(*store_->GetTuning(tuning.key), tuning);
  EXPECT_THAT(AllTunings(*store_), ElementsAre(WithoutSamples(tuning)));
}

TEST_F(StoredRowsTest, PutTuningsWritesAllThatItIsGiven) {
  Put(SampleTuning(2));
  ASSERT_TRUE(store_->PutTunings(SourceOf(3, absl::OkStatus())).ok());
  Reopen();
  EXPECT_THAT(AllTunings(*store_), SizeIs(3));
  EXPECT_EQ(*store_->GetTuning(SampleTuning(3).key), SampleTuning(3));
}

TEST_F(StoredRowsTest, PutTuningsLeavesNothingWhereItsSourceFails) {
  EXPECT_TRUE(absl::IsAborted(store_->PutTunings(SourceOf(3, absl::AbortedError("no")))));
  EXPECT_THAT(AllTunings(*store_), IsEmpty());
  Reopen();
  EXPECT_THAT(AllTunings(*store_), IsEmpty());
}

TEST_F(StoredRowsTest, KeepsExtremeNumbersAndOddText) {
  Tuning tuning = SampleTuning(1);
  Candidate& candidate = tuning.candidates[0];
  candidate.workspace_bytes = std::numeric_limits<int64_t>::max();
  candidate.numerical_notes = std::numeric_limits<uint32_t>::max();
  candidate.error_message = std::string("line\n\0'\"\\ \xff", 11);
  candidate.median_us = 1e-45F;
  candidate.q1_us = -0.0;
  candidate.samples_ns = {0, 1, std::numeric_limits<int64_t>::max()};
  tuning.tune_time = absl::FromUnixMicros(-5);
  Put(tuning);
  // What is no UTF-8 is kept as far as it is ASCII.
  tuning.candidates[0].error_message.back() = '?';
  EXPECT_EQ(*store_->GetTuning(tuning.key), tuning);
}

TEST_F(StoredRowsTest, RefusesAnEnvironmentThatIsNotTheKeys) {
  Environment other = SampleEnvironment();
  other.sm_count = 7;
  const absl::Status status = store_->PutTuning(SampleTuning(1), other);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("environment:"));
}

TEST_F(StoredRowsTest, ListsByTheBytesOfTheTexts) {
  for (const int n : {3, 1, 20, 2}) Put(ValidSampleTuning(n));
  EXPECT_THAT(
      AllTunings(*store_),
      ElementsAre(WithoutSamples(ValidSampleTuning(1)), WithoutSamples(ValidSampleTuning(20)),
                  WithoutSamples(ValidSampleTuning(2)), WithoutSamples(ValidSampleTuning(3))));
}

TEST_F(StoredRowsTest, DeleteCountsWhatWasThere) {
  PutSamples(2);
  const auto deleted =
      store_->DeleteTunings({SampleTuning(1).key, SampleTuning(9).key, SampleTuning(1).key});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, 1);
  EXPECT_TRUE(absl::IsNotFound(store_->GetTuning(SampleTuning(1).key).status()));
  EXPECT_TRUE(store_->GetTuning(SampleTuning(2).key).ok());
  // It may come again.
  Put(SampleTuning(1));
  EXPECT_EQ(*store_->GetTuning(SampleTuning(1).key), SampleTuning(1));
}

TEST_F(StoredRowsTest, ListsEnvironmentsThatHaveRows) {
  EXPECT_THAT(*store_->ListEnvironments(), IsEmpty());
  ASSERT_TRUE(store_->PutPin(SamplePin(1)).ok());
  // The pin's is known by its text. The tuning brings the full model.
  Put(SampleTuning(2));
  EXPECT_THAT(*store_->ListEnvironments(), ElementsAre(SampleEnvironment()));
  ASSERT_TRUE(store_->DeletePin(SamplePin(1).key).ok());
  ASSERT_TRUE(store_->DeleteTunings({SampleTuning(2).key}).ok());
  EXPECT_THAT(*store_->ListEnvironments(), IsEmpty());
}

TEST_F(StoredRowsTest, PinsAreReplacedListedAndDeleted) {
  Pin pin = SamplePin(2);
  ASSERT_TRUE(store_->PutPin(pin).ok());
  ASSERT_TRUE(store_->PutPin(SamplePin(1)).ok());
  pin.reason = "changed";
  pin.expire_time.reset();
  ASSERT_TRUE(store_->PutPin(pin).ok());
  Reopen();
  EXPECT_THAT(*store_->ListPins(), ElementsAre(SamplePin(1), pin));
  EXPECT_TRUE(store_->DeletePin(pin.key).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->DeletePin(pin.key)));
  EXPECT_THAT(*store_->ListPins(), ElementsAre(SamplePin(1)));
}

TEST_F(StoredRowsTest, DeletingATuningKeepsItsPinAndItsChoices) {
  Put(SampleTuning(1));
  ASSERT_TRUE(store_->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5)}).ok());
  ASSERT_TRUE(store_->DeleteTunings({SampleTuning(1).key}).ok());
  EXPECT_THAT(*store_->ListPins(), SizeIs(1));
  EXPECT_TRUE(store_->GetPortfolio(SampleTuning(1).key, 1).ok());
  ASSERT_TRUE(store_->DeletePin(SamplePin(1).key).ok());
  EXPECT_THAT(*store_->ListEnvironments(), SizeIs(1));
}

TEST_F(StoredRowsTest, BansAreNumberedListedAndDeleted) {
  Ban wide;
  wide.candidate = *CandidatePattern::Parse("legacy:*");
  wide.author = "ada";
  wide.reason = "not wanted";
  EXPECT_EQ(*store_->AddBan(SampleBan()), 1);
  EXPECT_EQ(*store_->AddBan(wide), 2);
  Reopen();
  wide.number = 2;
  Ban narrow = SampleBan();
  narrow.number = 1;
  EXPECT_THAT(*store_->ListBans(), ElementsAre(narrow, wide));
  EXPECT_TRUE(store_->DeleteBan(2).ok());
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteBan(2)));
  Reopen();
  EXPECT_EQ(*store_->AddBan(wide), 3);  // a number is never given twice
  EXPECT_THAT(*store_->ListBans(), SizeIs(2));
}

TEST_F(StoredRowsTest, QuarantineKeepsOneEntryPerCandidate) {
  QuarantineEntry entry = SampleQuarantine();
  ASSERT_TRUE(store_->PutQuarantine(entry).ok());
  entry.reason = QuarantineReason::kHung;
  entry.hang_budget = absl::Microseconds(1'500'001);
  entry.checker_version = 7;
  ASSERT_TRUE(store_->PutQuarantine(entry).ok());
  QuarantineEntry other = entry;
  other.candidate = LegacyAlgorithm{1, 2};
  ASSERT_TRUE(store_->PutQuarantine(other).ok());
  Reopen();
  EXPECT_THAT(*store_->ListQuarantine(), UnorderedElementsAre(entry, other));
}

TEST_F(StoredRowsTest, LiftsTheQuarantineOfTheCandidatesThatAreNamed) {
  const QuarantineEntry entry = SampleQuarantine(1);
  QuarantineEntry other_candidate = entry;
  other_candidate.candidate = LegacyAlgorithm{1, 2};
  const QuarantineEntry other_problem = SampleQuarantine(2);
  for (const QuarantineEntry& e : {entry, other_candidate, other_problem}) {
    ASSERT_TRUE(store_->PutQuarantine(e).ok());
  }
  ASSERT_TRUE(store_->DeleteQuarantine(entry.key, {EngineConfig{7, {}}, entry.candidate}).ok());
  Reopen();
  EXPECT_THAT(*store_->ListQuarantine(), UnorderedElementsAre(other_candidate, other_problem));
}

TEST_F(StoredRowsTest, CheckFindsNothingInASoundStore) {
  Put(SampleTuning(1));
  ASSERT_TRUE(store_->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(
      store_->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)}).ok());
  ASSERT_TRUE(store_->UpdateWanted({SampleWanted(1)}, {}).ok());
  const auto check = store_->Check();
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_THAT(check->findings(), IsEmpty());
  EXPECT_GE(check->rows_checked(), 10);
}

TEST_F(StoredRowsTest, BackupNeverReplacesAFile) {
  const std::string path = folder_.File("copy.db");
  ASSERT_TRUE(store_->Backup(path, {}).ok());
  const absl::Status status = store_->Backup(path, {}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("path: must not exist"));
}

TEST_F(StoredRowsTest, ServesReadersWhileOneWrites) {
  std::atomic<bool> done = false;
  std::atomic<int> failures = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        int64_t seen = 0;
        const absl::Status status = ForEachTuning(
            *store_, [&](const Tuning& tuning) { seen += tuning.candidates.size() == 5 ? 0 : 1; },
            [&](const std::string&) { ++seen; });
        failures += status.ok() && seen == 0 && store_->Check().ok() ? 0 : 1;
      }
    });
  }
  for (int n = 0; n < 60; ++n) Put(SampleTuning(n % 20));
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failures, 0);
  EXPECT_THAT(AllTunings(*store_), SizeIs(20));
}

}  // namespace
}  // namespace convtune::db::store
