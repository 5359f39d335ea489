#include "db/store/packed_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "proto/model/tuning/self_check.h"
#include "tests/unit/db/sample_tunings.h"

namespace convtune::db::store {
namespace {

using ::testing::IsEmpty;

Tuning Unpacked(const Tuning& tuning) {
  Tuning out = tuning;
  out.candidates.clear();
  out.stop_reason = StopReason::kBudget;
  out.rounds = -1;
  out.conditions.known = true;
  EXPECT_TRUE(UnpackCandidates(PackCandidates(tuning), &out));
  return out;
}

TEST(PackedCandidatesTest, ComeBackAsTheyWere) {
  EXPECT_EQ(Unpacked(SampleTuning(1)), WithoutSamples(SampleTuning(1)));
  EXPECT_EQ(Unpacked(SampleMeasuredTuning(2)), WithoutSamples(SampleMeasuredTuning(2)));
  Tuning none = SampleTuning(3);
  none.candidates.clear();
  EXPECT_EQ(Unpacked(none), none);
}

TEST(PackedCandidatesTest, ExtremeValuesComeBack) {
  Tuning tuning = SampleMeasuredTuning(1);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Candidate& candidate = tuning.candidates[0];
  candidate.id = EngineConfig{kMost, {{0, kLeast}, {std::numeric_limits<int>::max(), kMost}}};
  candidate.workspace_bytes = kMost;
  candidate.heuristic_rank = std::numeric_limits<int>::min();
  candidate.numerical_notes = 0xFFFFFFFF;
  candidate.behavior_notes = 0xFFFFFFFF;
  candidate.error = std::numeric_limits<double>::denorm_min();
  candidate.median_us = std::numeric_limits<double>::max();
  candidate.error_message = std::string("a\0b", 3);
  tuning.conditions.clock_reasons = 0xFFFFFFFF;
  tuning.conditions.ecc_errors = kMost;
  EXPECT_EQ(Unpacked(tuning), WithoutSamples(tuning));
}

TEST(PackedCandidatesTest, SamplesComeBackToTheirCandidates) {
  const Tuning tuning = SampleMeasuredTuning(1);
  std::vector<Candidate> candidates = WithoutSamples(tuning).candidates;
  EXPECT_EQ(LastPositionWithSamples(tuning.candidates), 3);
  ASSERT_TRUE(UnpackSamples(PackSamples(tuning.candidates), &candidates));
  EXPECT_EQ(candidates, tuning.candidates);
  EXPECT_THAT(PackSamples(WithoutSamples(tuning).candidates), IsEmpty());
}

TEST(PackedCandidatesTest, SamplesOfMoreCandidatesThanThereAreAreRefused) {
  const Tuning tuning = SampleTuning(1);
  std::vector<Candidate> candidates = WithoutSamples(tuning).candidates;
  candidates.resize(3);
  EXPECT_FALSE(UnpackSamples(PackSamples(tuning.candidates), &candidates));
}

TEST(PackedCandidatesTest, EveryCutIsRefused) {
  const Tuning tuning = SampleMeasuredTuning(1);
  const std::string bytes = PackCandidates(tuning);
  for (size_t size = 0; size < bytes.size(); ++size) {
    Tuning out;
    EXPECT_FALSE(UnpackCandidates(std::string_view(bytes).substr(0, size), &out)) << size;
  }
  Tuning out;
  EXPECT_FALSE(UnpackCandidates(bytes + '\0', &out));
}

// Whatever a byte becomes, reading ends; what is read keeps to the enumerations.
TEST(PackedCandidatesTest, NoByteOfItCanDoHarm) {
  const std::string bytes = PackCandidates(SampleMeasuredTuning(1));
  const std::string samples = PackSamples(SampleMeasuredTuning(1).candidates);
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(value);
      Tuning out;
      if (!UnpackCandidates(damaged, &out)) continue;
      for (const Candidate& candidate : out.candidates) {
        EXPECT_GE(candidate.status, CandidateStatus::kTimed);
        EXPECT_LE(candidate.status, CandidateStatus::kUnjudged);
      }
    }
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    std::string damaged = samples;
    damaged[i] = '\xFF';
    std::vector<Candidate> candidates(5);
    UnpackSamples(damaged, &candidates);
  }
}

TEST(PackedCandidatesTest, AnotherVersionIsRefused) {
  for (const char version : {0, 3}) {
    std::string bytes = PackCandidates(SampleTuning(1));
    bytes[0] = version;
    Tuning out;
    EXPECT_FALSE(UnpackCandidates(bytes, &out));
  }
}

TEST(PackedCandidatesTest, TheSelfCheckComesBack) {
  Tuning tuning = SampleTuning(1);
  tuning.conditions.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kCaches);
  EXPECT_EQ(Unpacked(tuning), WithoutSamples(tuning));
  tuning.conditions.self_check = SelfCheckBits();
  EXPECT_EQ(Unpacked(tuning), WithoutSamples(tuning));
}

// As version 1 of the blob: without a self-check behind the compute mode.
TEST(PackedCandidatesTest, TheFirstVersionIsReadToo) {
  Tuning tuning = SampleMeasuredTuning(1);
  tuning.candidates.clear();
  std::string bytes = PackCandidates(tuning);
  ASSERT_EQ(bytes.substr(bytes.size() - 2), std::string(2, '\0'));  // self-check, candidates
  bytes.pop_back();
  bytes[0] = 1;
  Tuning out;
  ASSERT_TRUE(UnpackCandidates(bytes, &out));
  EXPECT_EQ(out.conditions, tuning.conditions);
}

// A few bytes must not ask for the memory of many candidates.
TEST(PackedCandidatesTest, ACountBeyondTheBytesIsRefused) {
  Tuning none = SampleTuning(1);
  none.candidates.clear();
  std::string bytes = PackCandidates(none);
  bytes.back() = '\xFF';
  bytes += std::string("\xFF\xFF\xFF\x0F", 4);
  EXPECT_FALSE(UnpackCandidates(bytes, &none));
}

}  // namespace
}  // namespace convtune::db::store
