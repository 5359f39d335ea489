#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

using ::testing::IsEmpty;

using StoreRetentionTest = OpenStoreTest;

size_t CountSamples(const Tuning& tuning) {
  size_t count = 0;
  for (const Candidate& candidate : tuning.candidates) {
    count += candidate.samples_ns.size();
  }
  return count;
}

// About 8 KiB of samples: four bytes each.
Tuning BigTuning(int n) {
  Tuning tuning = SampleTuning(n);
  for (Candidate& candidate : tuning.candidates) {
    if (candidate.timed()) {
      candidate.samples_ns.resize(500, 2'500'000);
      SummarizeSamples(&candidate);
    }
  }
  return tuning;
}

TEST_F(StoreRetentionTest, CompactThinsOldTuningsBehindTheirThird) {
  Tuning old = SampleTuning(1);
  old.tune_time = clock_.now - absl::Hours(31 * 24);
  Tuning recent = SampleTuning(2);
  recent.tune_time = clock_.now - absl::Hours(29 * 24);
  Put(old);
  Put(recent);
  const auto compaction = store_->Compact();
  ASSERT_TRUE(compaction.ok()) << compaction.status();
  EXPECT_EQ(compaction->thinned(), 1);
  old.candidates[3].samples_ns.clear();
  EXPECT_EQ(*store_->GetTuning(old.key), old);
  EXPECT_EQ(*store_->GetTuning(recent.key), recent);
  EXPECT_THAT(store_->Check()->findings(), IsEmpty());
}

TEST_F(StoreRetentionTest, AMutationThinsAnHourAfterTheStartAndOnceADay) {
  const auto put = [&](int n, absl::Time tune_time) {
    Tuning tuning = SampleTuning(n);
    tuning.tune_time = tune_time;
    Put(tuning);
    return tuning;
  };
  const absl::Time old = clock_.now - absl::Hours(31 * 24);
  Tuning early = put(1, old);
  EXPECT_EQ(*store_->GetTuning(early.key), early);
  clock_.now += absl::Hours(1);
  put(2, clock_.now);
  early.candidates[3].samples_ns.clear();
  EXPECT_EQ(*store_->GetTuning(early.key), early);

  Tuning late = put(3, old);  // after the day's pass
  clock_.now += absl::Hours(23);
  put(4, clock_.now);
  EXPECT_EQ(*store_->GetTuning(late.key), late);
  clock_.now += absl::Hours(1);
  put(5, clock_.now);
  late.candidates[3].samples_ns.clear();
  EXPECT_EQ(*store_->GetTuning(late.key), late);
}

TEST_F(StoreRetentionTest, CompactGivesFreePagesBack) {
  std::vector<TuningKey> keys;
  for (int n = 0; n < 200; ++n) {
    Put(SampleTuning(n));
    keys.push_back(SampleTuning(n).key);
  }
  ASSERT_TRUE(store_->DeleteTunings(keys).ok());
  const auto compaction = store_->Compact();
  ASSERT_TRUE(compaction.ok()) << compaction.status();
  EXPECT_LT(compaction->bytes_after(), compaction->bytes_before() / 2);
  EXPECT_EQ(compaction->bytes_after(), store_->SizeBytes());
}

TEST_F(StoreRetentionTest, AboveTheCapTheOldestLoseTheirSamplesFirst) {
  auto options = Options();
  options.max_bytes = 256 * 1024;
  store_.reset();
  store_ = Open(options);
  constexpr int kCount = 60;
  for (int n = 0; n < kCount; ++n) Put(BigTuning(n));
  const auto oldest = store_->GetTuning(SampleTuning(0).key);
  ASSERT_TRUE(oldest.ok()) << oldest.status();
  EXPECT_EQ(*oldest, WithoutSamples(BigTuning(0)));
  const auto newest = store_->GetTuning(SampleTuning(kCount - 1).key);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(CountSamples(*newest), CountSamples(BigTuning(kCount - 1)));
  ASSERT_TRUE(store_->Compact().ok());
  EXPECT_LE(store_->SizeBytes(), options.max_bytes);
  EXPECT_THAT(store_->Check()->findings(), IsEmpty());
}

TEST_F(StoreRetentionTest, ACapBelowTheWinnersKeepsThem) {
  auto options = Options();
  options.max_bytes = 1;
  store_.reset();
  store_ = Open(options);
  for (int n = 0; n < 20; ++n) Put(SampleTuning(n));
  EXPECT_EQ(AllTunings(*store_).size(), 20U);
}

}  // namespace
}  // namespace convtune::db::store
