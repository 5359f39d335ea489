#include "proto/convert/record_codec.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/model/tuning/conditions.h"
#include "tests/unit/db/sample_tunings.h"

namespace convtune {
namespace {

// As it comes back from its bytes.
Tuning Returned(const Tuning& tuning, bool with_samples = true) {
  v1::Tuning record;
  Fill(tuning, with_samples, &record);
  v1::Tuning parsed;
  EXPECT_TRUE(parsed.ParseFromString(record.SerializeAsString()));
  Tuning out;
  out.key = tuning.key;
  out.stop_reason = StopReason::kBudget;
  out.rounds = -1;
  out.conditions.known = true;
  out.candidates.resize(1);
  EXPECT_TRUE(Read(parsed, &out).ok());
  return out;
}

TEST(RecordCodecTest, TuningsComeBackAsTheyWere) {
  for (const Tuning& tuning :
       {db::SampleTuning(1), db::SampleMeasuredTuning(2), db::SampleIncompleteTuning(3)}) {
    EXPECT_EQ(Returned(tuning), tuning);
    EXPECT_EQ(Returned(tuning, false), db::WithoutSamples(tuning));
  }
  EXPECT_EQ(Returned(Tuning()), Tuning());
}

TEST(RecordCodecTest, ExtremeValuesComeBack) {
  Tuning tuning = db::SampleMeasuredTuning(1);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Candidate& candidate = tuning.candidates[0];
  candidate.id = EngineConfig{kMost, {{0, kLeast}, {std::numeric_limits<int>::max(), kMost}}};
  candidate.workspace_bytes = kMost;
  candidate.heuristic_rank = std::numeric_limits<int>::min();
  candidate.places = {HeuristicPlaces::kMost, 0, 1};
  candidate.numerical_notes = 0xFFFFFFFF;
  candidate.behavior_notes = 0xFFFFFFFF;
  candidate.error = std::numeric_limits<float>::denorm_min();
  candidate.median_us = std::numeric_limits<float>::max();
  tuning.conditions.clock_reasons = 0xFFFFFFFF;
  tuning.conditions.ecc_errors = kMost;
  tuning.conditions.self_check = 0xFCFC003FU;  // every bit, those of old tunings included
  tuning.tune_time = absl::FromUnixMicros(-1);
  tuning.elapsed = absl::Microseconds(-1);
  EXPECT_EQ(Returned(tuning), tuning);
}

TEST(RecordCodecTest, TheSelfCheckComesBackWithAndWithoutConditions) {
  for (const bool known : {false, true}) {
    Tuning tuning;
    tuning.conditions.known = known;
    tuning.conditions.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kCaches);
    EXPECT_EQ(Returned(tuning), tuning);
  }
}

TEST(RecordCodecTest, TimesThatNoTimestampHoldsBecomeTheNearest) {
  EXPECT_EQ(ToProto(absl::InfiniteFuture()).seconds(), 253402300799);
  EXPECT_EQ(ToProto(absl::InfinitePast()).seconds(), -62135596800);
  EXPECT_EQ(ToProto(absl::UnixEpoch() - absl::Nanoseconds(1)).seconds(), -1);
  EXPECT_EQ(ToProto(absl::UnixEpoch() - absl::Nanoseconds(1)).nanos(), 999999999);
  EXPECT_EQ(ToProto(absl::InfiniteDuration()).seconds(), 315576000000);
  google::protobuf::Timestamp time;
  time.set_seconds(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(FromProto(time), absl::FromUnixSeconds(253402300799));
}

TEST(RecordCodecTest, NumbersThatNobodyWritesAreRefusedByTheirField) {
  // The field that the error names; empty: the record can be read.
  const auto refused = [](auto change) {
    v1::Tuning record;
    Fill(db::SampleMeasuredTuning(1), true, &record);
    change(&record);
    Tuning out;
    const std::optional<Violation> violation = ViolationIn(Read(record, &out));
    return violation ? violation->field : "";
  };
  const auto of_first = [&refused](auto change) {
    return refused([&](v1::Tuning* record) { change(record->mutable_candidates(0)); });
  };
  EXPECT_EQ(refused([](auto*) {}), "");
  EXPECT_EQ(refused([](auto* r) { r->set_evidence(static_cast<v1::Evidence>(41)); }), "evidence");
  EXPECT_EQ(refused([](auto* r) { r->set_origin(static_cast<v1::Origin>(4)); }), "origin");
  EXPECT_EQ(refused([](auto* r) { r->set_stop_reason(static_cast<v1::StopReason>(6)); }),
            "stop_reason");
  EXPECT_EQ(refused([](auto* r) { r->set_cache_state(static_cast<v1::CacheState>(-1)); }),
            "cache_state");
  EXPECT_EQ(
      refused([](auto* r) { r->add_incomplete_reasons(static_cast<v1::IncompleteReason>(32)); }),
      "incomplete_reasons");
  EXPECT_EQ(refused([](auto* r) {
              r->mutable_conditions()->set_compute_mode(static_cast<v1::ComputeMode>(5));
            }),
            "conditions.compute_mode");
  EXPECT_EQ(
      refused([](auto* r) { r->mutable_conditions()->mutable_self_check()->add_failed("clock"); }),
      "conditions.self_check");
  EXPECT_EQ(of_first([](auto* c) { c->clear_kind(); }), "candidates[0].kind");
  EXPECT_EQ(of_first([](auto* c) { c->mutable_engine_config()->add_knob_types(9); }),
            "candidates[0].engine_config.knob_types");
  EXPECT_EQ(of_first([](auto* c) { c->mutable_engine_config()->set_engine_index(-1); }),
            "candidates[0].engine_config.engine_index");
  EXPECT_EQ(of_first([](auto* c) { c->mutable_engine_config()->set_knob_types(0, -1); }),
            "candidates[0].engine_config.knob_types");
  EXPECT_EQ(of_first([](auto* c) { c->mutable_legacy_algorithm()->set_algorithm(-1); }),
            "candidates[0].legacy_algorithm");
  EXPECT_EQ(of_first([](auto* c) { c->mutable_legacy_algorithm()->set_math_type(-1); }),
            "candidates[0].legacy_algorithm");
  EXPECT_EQ(of_first([](auto* c) { c->clear_status(); }), "candidates[0].status");
  EXPECT_EQ(of_first([](auto* c) { c->set_status(static_cast<v1::CandidateStatus>(9)); }),
            "candidates[0].status");
  EXPECT_EQ(of_first([](auto* c) { c->set_capture(static_cast<v1::CaptureSupport>(3)); }),
            "candidates[0].capture");
  EXPECT_EQ(of_first([](auto* c) { c->add_numerical_notes(v1::NUMERICAL_NOTE_TENSOR_CORE); }),
            "candidates[0].numerical_notes");
  EXPECT_EQ(of_first([](auto* c) { c->add_behavior_notes(static_cast<v1::BehaviorNote>(32)); }),
            "candidates[0].behavior_notes");
  EXPECT_EQ(of_first([](auto* c) { c->add_other_times(); }), "candidates[0].other_times");
}

TEST(RecordCodecTest, TheLongestConfigThatIsReadHasATextForm) {
  v1::Candidate record;
  Fill(db::SampleTuning(1).candidates[0], false, &record);
  v1::EngineConfig* config = record.mutable_engine_config();
  config->Clear();
  config->set_engine_index(std::numeric_limits<int64_t>::max());
  for (int i = 0; i < 100; ++i) {
    config->add_knob_types(std::numeric_limits<int>::max() - 100 + i);
    config->add_knob_values(std::numeric_limits<int64_t>::min());
  }
  Candidate out;
  ASSERT_TRUE(Read(record, &out).ok());
  EXPECT_EQ(ParseCandidateId(ToText(out.id)).value(), out.id);
  config->add_knob_types(std::numeric_limits<int>::max());
  config->add_knob_values(0);
  EXPECT_FALSE(Read(record, &out).ok());
}

// Whatever a byte becomes, reading ends; what is read keeps to the enumerations.
TEST(RecordCodecTest, NoByteOfItCanDoHarm) {
  v1::Tuning record;
  Fill(db::SampleMeasuredTuning(1), false, &record);
  const std::string bytes = record.SerializeAsString();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(value);
      Tuning out;
      if (!record.ParseFromString(damaged) || !Read(record, &out).ok()) continue;
      for (const Candidate& candidate : out.candidates) {
        EXPECT_GE(candidate.status, CandidateStatus::kTimed);
        EXPECT_LE(candidate.status, CandidateStatus::kUnjudged);
      }
    }
  }
}

}  // namespace
}  // namespace convtune
