// What every engine of TuningStore does. An engine's test instantiates the
// suite with a type that has
//   absl::StatusOr<std::unique_ptr<TuningStore>> Open();  // the same data again
//   std::string NewFolder();                              // for backups
// The store that Open() gave before is destroyed first.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "db/tuning_store.h"
#include "tests/unit/db/for_each_tuning.h"
#include "tests/unit/db/sample_tunings.h"

namespace convtune::db {

template <typename Engine>
class TuningStoreConformance : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }

  void Reopen() {
    store_.reset();
    auto store = engine_.Open();
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  std::vector<Tuning> All() {
    std::vector<Tuning> tunings;
    const absl::Status status = ForEachTuning(
        *store_,
        [&](Tuning tuning) {
          tunings.push_back(std::move(tuning));
          return true;
        },
        [](const std::string& text) { ADD_FAILURE() << "corrupt: " << text; });
    EXPECT_TRUE(status.ok()) << status;
    return tunings;
  }

  Engine engine_;
  std::unique_ptr<TuningStore> store_;
};

TYPED_TEST_SUITE_P(TuningStoreConformance);

TYPED_TEST_P(TuningStoreConformance, GivesBackATuningAsItWasPut) {
  const Tuning tuning = SampleTuning(1);
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  const auto got = this->store_->GetTuning(tuning.key);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, tuning);
}

TYPED_TEST_P(TuningStoreConformance, GivesBackMeasurementsAsTheyWerePut) {
  const Tuning tuning = SampleMeasuredTuning(1);
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  const auto got = this->store_->GetTuning(tuning.key);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, tuning);
  std::vector<Tuning> visited;
  ASSERT_TRUE(ForEachTuning(
                  *this->store_,
                  [&](Tuning each) {
                    visited.push_back(std::move(each));
                    return true;
                  },
                  [](const std::string& row) { ADD_FAILURE() << row; })
                  .ok());
  EXPECT_THAT(visited, ::testing::ElementsAre(WithoutSamples(tuning)));
}

TYPED_TEST_P(TuningStoreConformance, AReplacedTuningLeavesNoMeasurementsBehind) {
  ASSERT_TRUE(this->store_->PutTuning(SampleMeasuredTuning(1), SampleEnvironment()).ok());
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  EXPECT_EQ(*this->store_->GetTuning(SampleTuning(1).key), SampleTuning(1));
}

TYPED_TEST_P(TuningStoreConformance, KeepsTuningsOverAReopen) {
  const Tuning tuning = SampleTuning(1);
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  this->Reopen();
  const auto got = this->store_->GetTuning(tuning.key);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, tuning);
}

TYPED_TEST_P(TuningStoreConformance, GetOfAnAbsentKeyIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(this->store_->GetTuning(SampleTuning(1).key).status()));
}

TYPED_TEST_P(TuningStoreConformance, PutReplacesWhatTheKeyHad) {
  Tuning tuning = SampleTuning(1);
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  tuning.candidates.resize(1);
  tuning.evidence = Evidence::kHeuristic;
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  const auto got = this->store_->GetTuning(tuning.key);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, tuning);
  EXPECT_EQ(this->All().size(), 1U);
}

// Gives tunings 1 to `count`, then `end`.
inline TuningSource SourceOf(int count, absl::Status end) {
  return [count, end, n = 0]() mutable -> absl::StatusOr<std::optional<TuningRecord>> {
    if (++n <= count) return TuningRecord{SampleTuning(n), SampleEnvironment()};
    if (!end.ok()) return end;
    return std::nullopt;
  };
}

TYPED_TEST_P(TuningStoreConformance, PutTuningsWritesAllThatItIsGiven) {
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(2), SampleEnvironment()).ok());
  ASSERT_TRUE(this->store_->PutTunings(SourceOf(3, absl::OkStatus())).ok());
  this->Reopen();
  EXPECT_EQ(this->All().size(), 3U);
  EXPECT_EQ(*this->store_->GetTuning(SampleTuning(3).key), SampleTuning(3));
}

TYPED_TEST_P(TuningStoreConformance, PutTuningsLeavesNothingWhereItsSourceFails) {
  EXPECT_TRUE(absl::IsAborted(this->store_->PutTunings(SourceOf(3, absl::AbortedError("no")))));
  EXPECT_TRUE(this->All().empty());
  this->Reopen();
  EXPECT_TRUE(this->All().empty());
}

TYPED_TEST_P(TuningStoreConformance, KeepsATuningWithoutCandidates) {
  Tuning tuning = SampleTuning(1);
  tuning.candidates.clear();
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  EXPECT_EQ(*this->store_->GetTuning(tuning.key), tuning);
}

TYPED_TEST_P(TuningStoreConformance, KeepsExtremeNumbersAndOddText) {
  Tuning tuning = SampleTuning(1);
  Candidate& candidate = tuning.candidates[0];
  candidate.workspace_bytes = std::numeric_limits<int64_t>::max();
  candidate.numerical_notes = std::numeric_limits<uint32_t>::max();
  candidate.error_message = std::string("line\n\0'\"\\ \xff", 11);
  candidate.median_us = 1e-45F;
  candidate.q1_us = -0.0;
  candidate.samples_ns = {0, 1, std::numeric_limits<int64_t>::max()};
  tuning.tune_time = absl::FromUnixMicros(-5);
  ASSERT_TRUE(this->store_->PutTuning(tuning, SampleEnvironment()).ok());
  const auto got = this->store_->GetTuning(tuning.key);
  ASSERT_TRUE(got.ok()) << got.status();
  // What is no UTF-8 is kept as far as it is ASCII.
  tuning.candidates[0].error_message.back() = '?';
  EXPECT_EQ(*got, tuning);
}

TYPED_TEST_P(TuningStoreConformance, RefusesAnEnvironmentThatIsNotTheKeys) {
  Environment other = SampleEnvironment();
  other.sm_count = 7;
  const absl::Status status = this->store_->PutTuning(SampleTuning(1), other);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("environment:"));
}

TYPED_TEST_P(TuningStoreConformance, ForEachGoesInOrderAndWithoutSamples) {
  for (const int n : {3, 1, 2}) {
    ASSERT_TRUE(this->store_->PutTuning(SampleTuning(n), SampleEnvironment()).ok());
  }
  const std::vector<Tuning> tunings = this->All();
  ASSERT_EQ(tunings.size(), 3U);
  for (int n = 1; n <= 3; ++n) {
    EXPECT_EQ(tunings[static_cast<size_t>(n - 1)], WithoutSamples(SampleTuning(n)));
  }
}

TYPED_TEST_P(TuningStoreConformance, DeleteCountsWhatWasThere) {
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(2), SampleEnvironment()).ok());
  const auto deleted =
      this->store_->DeleteTunings({SampleTuning(1).key, SampleTuning(9).key, SampleTuning(1).key});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, 1);
  EXPECT_TRUE(absl::IsNotFound(this->store_->GetTuning(SampleTuning(1).key).status()));
  EXPECT_TRUE(this->store_->GetTuning(SampleTuning(2).key).ok());
}

TYPED_TEST_P(TuningStoreConformance, ListsEnvironmentsThatHaveRows) {
  EXPECT_TRUE(this->store_->ListEnvironments()->empty());
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  EXPECT_THAT(*this->store_->ListEnvironments(), ::testing::ElementsAre(SampleEnvironment()));
  ASSERT_TRUE(this->store_->DeleteTunings({SampleTuning(1).key}).ok());
  EXPECT_TRUE(this->store_->ListEnvironments()->empty());
}

TYPED_TEST_P(TuningStoreConformance, ATuningBringsTheFullModelOfAnEnvironmentKnownByText) {
  ASSERT_TRUE(this->store_->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  EXPECT_THAT(*this->store_->ListEnvironments(), ::testing::ElementsAre(SampleEnvironment()));
}

TYPED_TEST_P(TuningStoreConformance, PinsAreReplacedListedAndDeleted) {
  Pin pin = SamplePin(2);
  ASSERT_TRUE(this->store_->PutPin(pin).ok());
  ASSERT_TRUE(this->store_->PutPin(SamplePin(1)).ok());
  pin.reason = "changed";
  pin.expire_time.reset();
  ASSERT_TRUE(this->store_->PutPin(pin).ok());
  this->Reopen();
  EXPECT_THAT(*this->store_->ListPins(), ::testing::ElementsAre(SamplePin(1), pin));
  EXPECT_TRUE(this->store_->DeletePin(pin.key).ok());
  EXPECT_TRUE(absl::IsNotFound(this->store_->DeletePin(pin.key)));
  EXPECT_THAT(*this->store_->ListPins(), ::testing::ElementsAre(SamplePin(1)));
}

TYPED_TEST_P(TuningStoreConformance, DeletingATuningKeepsItsPin) {
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  ASSERT_TRUE(this->store_->PutPin(SamplePin(1)).ok());
  ASSERT_TRUE(this->store_->DeleteTunings({SampleTuning(1).key}).ok());
  EXPECT_EQ(this->store_->ListPins()->size(), 1U);
}

TYPED_TEST_P(TuningStoreConformance, BansAreNumberedListedAndDeleted) {
  Ban wide;
  wide.candidate = *CandidatePattern::Parse("legacy:*");
  wide.author = "ada";
  wide.reason = "not wanted";
  EXPECT_EQ(*this->store_->AddBan(SampleBan()), 1);
  EXPECT_EQ(*this->store_->AddBan(wide), 2);
  this->Reopen();
  wide.number = 2;
  Ban narrow = SampleBan();
  narrow.number = 1;
  EXPECT_THAT(*this->store_->ListBans(), ::testing::ElementsAre(narrow, wide));
  EXPECT_TRUE(this->store_->DeleteBan(2).ok());
  EXPECT_TRUE(absl::IsNotFound(this->store_->DeleteBan(2)));
  this->Reopen();
  EXPECT_EQ(*this->store_->AddBan(wide), 3);  // a number is never given twice
  EXPECT_THAT(*this->store_->ListBans(), ::testing::SizeIs(2));
}

TYPED_TEST_P(TuningStoreConformance, QuarantineKeepsOneEntryPerCandidate) {
  QuarantineEntry entry{SampleTuning(1).key, EngineConfig{34, {}},     QuarantineReason::kCrashed,
                        "illegal address",   absl::FromUnixSeconds(7), {}};
  ASSERT_TRUE(this->store_->PutQuarantine(entry).ok());
  entry.reason = QuarantineReason::kHung;
  entry.hang_budget = absl::Microseconds(1'500'001);
  entry.checker_version = 7;
  ASSERT_TRUE(this->store_->PutQuarantine(entry).ok());
  QuarantineEntry other = entry;
  other.candidate = LegacyAlgorithm{1, 2};
  ASSERT_TRUE(this->store_->PutQuarantine(other).ok());
  this->Reopen();
  EXPECT_THAT(*this->store_->ListQuarantine(), ::testing::UnorderedElementsAre(entry, other));
}

TYPED_TEST_P(TuningStoreConformance, LiftsTheQuarantineOfTheCandidatesThatAreNamed) {
  const QuarantineEntry entry{SampleTuning(1).key,        EngineConfig{34, {}},
                              QuarantineReason::kCrashed, "hang",
                              absl::FromUnixSeconds(7),   {}};
  QuarantineEntry other_candidate = entry;
  other_candidate.candidate = LegacyAlgorithm{1, 2};
  QuarantineEntry other_problem = entry;
  other_problem.key = SampleTuning(2).key;
  for (const QuarantineEntry& e : {entry, other_candidate, other_problem}) {
    ASSERT_TRUE(this->store_->PutQuarantine(e).ok());
  }
  ASSERT_TRUE(
      this->store_->DeleteQuarantine(entry.key, {EngineConfig{7, {}}, entry.candidate}).ok());
  this->Reopen();
  EXPECT_THAT(*this->store_->ListQuarantine(),
              ::testing::UnorderedElementsAre(other_candidate, other_problem));
}

TYPED_TEST_P(TuningStoreConformance, CheckFindsNothingInASoundStore) {
  ASSERT_TRUE(this->store_->PutTuning(SampleTuning(1), SampleEnvironment()).ok());
  ASSERT_TRUE(this->store_->PutPin(SamplePin(1)).ok());
  const auto check = this->store_->Check();
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_THAT(check->findings(), ::testing::IsEmpty());
  EXPECT_GE(check->rows_checked(), 4);
}

TYPED_TEST_P(TuningStoreConformance, BackupNeverReplacesAFile) {
  const std::string path = this->engine_.NewFolder() + "/copy.db";
  ASSERT_TRUE(this->store_->Backup(path, {}).ok());
  const absl::Status status = this->store_->Backup(path, {}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("path: must not exist"));
}

TYPED_TEST_P(TuningStoreConformance, ServesReadersWhileOneWrites) {
  std::atomic<bool> done = false;
  std::atomic<int> failures = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        int64_t seen = 0;
        const absl::Status status = ForEachTuning(
            *this->store_,
            [&](const Tuning& tuning) {
              seen += tuning.candidates.size() == 5 ? 0 : 1;
              return true;
            },
            [&](const std::string&) { ++seen; });
        failures += status.ok() && seen == 0 && this->store_->Check().ok() ? 0 : 1;
      }
    });
  }
  for (int n = 0; n < 60; ++n) {
    EXPECT_TRUE(this->store_->PutTuning(SampleTuning(n % 20), SampleEnvironment()).ok());
  }
  done = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(this->All().size(), 20U);
}

REGISTER_TYPED_TEST_SUITE_P(
    TuningStoreConformance, GivesBackATuningAsItWasPut, GivesBackMeasurementsAsTheyWerePut,
    AReplacedTuningLeavesNoMeasurementsBehind, KeepsTuningsOverAReopen, GetOfAnAbsentKeyIsNotFound,
    PutReplacesWhatTheKeyHad, KeepsATuningWithoutCandidates, PutTuningsWritesAllThatItIsGiven,
    PutTuningsLeavesNothingWhereItsSourceFails, KeepsExtremeNumbersAndOddText,
    RefusesAnEnvironmentThatIsNotTheKeys, ForEachGoesInOrderAndWithoutSamples,
    DeleteCountsWhatWasThere, ListsEnvironmentsThatHaveRows,
    ATuningBringsTheFullModelOfAnEnvironmentKnownByText, PinsAreReplacedListedAndDeleted,
    DeletingATuningKeepsItsPin, BansAreNumberedListedAndDeleted,
    QuarantineKeepsOneEntryPerCandidate, LiftsTheQuarantineOfTheCandidatesThatAreNamed,
    CheckFindsNothingInASoundStore, BackupNeverReplacesAFile, ServesReadersWhileOneWrites);

}  // namespace convtune::db
