#include "db/bundle/bundle_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/conditions.h"
#include "proto/model/violation.h"
#include "tests/unit/db/bundle/bundle_files.h"

namespace convtune::db::bundle {
namespace {

absl::StatusOr<Tuning> ReadRow(const v1::Tuning& row) {
  return FromBundleTuning(row, FromBundleEnvironment(SampleBundleEnvironment()), kNow);
}

absl::Status StatusOf(const std::function<void(v1::Tuning*)>& change) {
  v1::Tuning row = SampleRow(1);
  change(&row);
  return ReadRow(row).status();
}

// What is wrong with a row that was changed so; UNSPECIFIED: nothing.
v1::RefusalReason ReasonOf(const std::function<void(v1::Tuning*)>& change) {
  const absl::Status status = StatusOf(change);
  EXPECT_EQ(status.ok(), RefusalReasonOf(status) == v1::REFUSAL_REASON_UNSPECIFIED) << status;
  EXPECT_EQ(status.ok(), !ViolationIn(status).has_value()) << status;
  return RefusalReasonOf(status);
}

void Merge(const std::string& change, google::protobuf::Message* message) {
  ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(change, message)) << change;
}

// Changed as the text says.
v1::RefusalReason ReasonOf(const char* change) {
  return ReasonOf([change](v1::Tuning* row) { Merge(change, row); });
}
v1::RefusalReason ReasonOfFirstCandidate(const char* change) {
  return ReasonOf([change](v1::Tuning* row) { Merge(change, row->mutable_candidates(0)); });
}

v1::Candidate* First(v1::Tuning* row) { return row->mutable_candidates(0); }

TEST(BundleCodecTest, ASoundRowIsTaken) { EXPECT_EQ(ReasonOf(""), v1::REFUSAL_REASON_UNSPECIFIED); }

TEST(BundleCodecTest, TheProblemMustBeOneInItsCanonicalForm) {
  for (const char* change : {"problem_text: 'fwd'", "problem_text: 'fwd,x=1x1x1x1,w=1x1x1x1'",
                             "problem_text: '../../etc/passwd'"}) {
    EXPECT_EQ(ReasonOf(change), v1::REFUSAL_REASON_PROBLEM) << change;
  }
}

TEST(BundleCodecTest, CandidatesMustBeSome) {
  const auto with_config = [](const char* config) {
    return ReasonOf([config](v1::Tuning* row) {
      First(row)->clear_kind();
      Merge(config, First(row));
    });
  };
  EXPECT_EQ(with_config("engine_config { knob_types: [2, 3] knob_values: [1, 1] }"),
            v1::REFUSAL_REASON_UNSPECIFIED);
  for (const char* config :
       {"", "engine_config { knob_types: [3, 2] knob_values: [1, 1] }",
        "engine_config { knob_types: [2, 2] knob_values: [1, 1] }",
        "engine_config { knob_types: [2, 3] knob_values: 1 }",
        "engine_config { knob_types: [-1, 3] knob_values: [1, 1] }",
        "engine_config { engine_index: -1 }", "legacy_algorithm { algorithm: -1 }",
        "legacy_algorithm { math_type: -1 }"}) {
    EXPECT_EQ(with_config(config), v1::REFUSAL_REASON_CANDIDATE) << config;
  }
  for (const char* change :
       {"status: CANDIDATE_STATUS_UNSPECIFIED", "status: 99", "numerical_notes: 32"}) {
    EXPECT_EQ(ReasonOfFirstCandidate(change), v1::REFUSAL_REASON_CANDIDATE) << change;
  }
  EXPECT_EQ(ReasonOf([](v1::Tuning* row) {
              *First(row)->mutable_engine_config() = row->candidates(1).engine_config();
            }),
            v1::REFUSAL_REASON_CANDIDATE);
}

TEST(BundleCodecTest, NumbersMustBeSuchAsAMeasurementGives) {
  for (const char* change :
       {"median_us: nan", "median_us: -1", "q3_us: 1e30", "find_us: nan", "sample_count: 0",
        "sample_count: -1", "sample_count: 1000000", "workspace_bytes: -1",
        // A median far below every sample.
        "q1_us: 0.1 median_us: 0.1 q3_us: 0.1"}) {
    EXPECT_EQ(ReasonOfFirstCandidate(change), v1::REFUSAL_REASON_MEASUREMENT) << change;
  }
  EXPECT_EQ(ReasonOf([](v1::Tuning* row) { First(row)->set_samples_ns(0, -1); }),
            v1::REFUSAL_REASON_MEASUREMENT);
}

TEST(BundleCodecTest, IntervalsErrorsAndOtherTimesGoAlong) {
  const Tuning made = SampleMeasuredTuning(1);
  v1::Tuning row = ToBundleTuning(made, 1, true);
  row.set_problem_text(SampleRow(1).problem_text());
  row.set_evidence(v1::EVIDENCE_INCOMPLETE);  // as its conditions are
  const auto read = ReadRow(row);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->candidates[0], made.candidates[0]);
  EXPECT_EQ(read->stop_reason, made.stop_reason);
  EXPECT_EQ(read->rounds, made.rounds);
  EXPECT_EQ(read->cache_state, made.cache_state);
  EXPECT_TRUE(made.conditions.known);
  EXPECT_EQ(read->conditions, made.conditions);
}

TEST(BundleCodecTest, TheSelfCheckGoesAlongWithAndWithoutConditions) {
  for (const bool known : {false, true}) {
    Tuning made = SampleTuning(1);
    made.conditions.known = known;
    made.conditions.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kCaches);
    v1::Tuning row = ToBundleTuning(made, 1, true);
    row.set_problem_text(SampleRow(1).problem_text());
    const auto read = ReadRow(row);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->conditions, made.conditions);
  }
  // Not run, and failed all the same; an instrument that there is not.
  for (const char* change : {"conditions { self_check { failed: 'clock' } }",
                             "conditions { self_check { known: true failed: 'hammer' } }"}) {
    EXPECT_EQ(ReasonOf(change), v1::REFUSAL_REASON_MEASUREMENT) << change;
  }
}

TEST(BundleCodecTest, ConditionsMustBeSuchAsNvmlGives) {
  EXPECT_EQ(ReasonOf("conditions { known: true }"), v1::REFUSAL_REASON_UNSPECIFIED);
  for (const char* change :
       {"other_processes: -1", "ecc_errors: -1", "retried_runs: -1", "power_limit_watts: -0.5",
        "power_limit_watts: nan", "compute_mode: 5", "compute_mode: -1"}) {
    const std::string conditions = absl::StrCat("conditions { known: true ", change, " }");
    EXPECT_EQ(ReasonOf(conditions.c_str()), v1::REFUSAL_REASON_MEASUREMENT) << change;
  }
  EXPECT_EQ(ReasonOf([](v1::Tuning* row) {
              row->mutable_conditions()->set_known(true);
              row->mutable_conditions()->set_unblocked(std::string(65537, 'x'));
            }),
            v1::REFUSAL_REASON_MEASUREMENT);
}

TEST(BundleCodecTest, AMedianOutsideItsQuartilesNeedsAnIntervalAroundIt) {
  const auto with_median = [](float low, float median, float high) {
    return ReasonOf([=](auto* row) {
      First(row)->set_median_us(median);
      First(row)->set_low_us(low);
      First(row)->set_high_us(high);
    });
  };
  const float above = SampleRow(1).candidates(0).q3_us() + 1;
  EXPECT_EQ(with_median(0, above, 0), v1::REFUSAL_REASON_MEASUREMENT);
  EXPECT_EQ(with_median(above + 1, above, above + 2), v1::REFUSAL_REASON_MEASUREMENT);
  EXPECT_EQ(with_median(above - 1, above, above + 1), v1::REFUSAL_REASON_UNSPECIFIED);
}

TEST(BundleCodecTest, OtherTimesMustBeNamedInOrderAndFinite) {
  const auto with = [](const std::string& second) {
    const std::string times = absl::StrCat(
        "other_times { launch: LAUNCH_MODE_EAGER cache_state: CACHE_STATE_HOT "
        "median_us: 9 low_us: 8 high_us: 10 sample_count: 3 } other_times { ",
        second, " }");
    return ReasonOfFirstCandidate(times.c_str());
  };
  const std::string later =
      "launch: LAUNCH_MODE_GRAPH_CAPTURE cache_state: CACHE_STATE_COLD sample_count: 1";
  EXPECT_EQ(with(later), v1::REFUSAL_REASON_UNSPECIFIED);
  for (const std::string& second :
       {std::string(), later + " launch: LAUNCH_MODE_EAGER", later + " low_us: 5"}) {
    EXPECT_EQ(with(second), v1::REFUSAL_REASON_MEASUREMENT) << second;
  }
}

TEST(BundleCodecTest, EvidenceMustNotClaimMoreThanTheCandidatesShow) {
  EXPECT_EQ(ReasonOf([](v1::Tuning* row) { row->clear_candidates(); }),
            v1::REFUSAL_REASON_EVIDENCE);
  for (const char* change : {"evidence: 41", "evidence: EVIDENCE_UNSPECIFIED",
                             "incomplete_message: 'the budget ended'"}) {
    EXPECT_EQ(ReasonOf(change), v1::REFUSAL_REASON_EVIDENCE) << change;
  }
}

TEST(BundleCodecTest, WhatCallsItselfContendedIsNotMeasured) {
  const absl::Status contended = StatusOf(
      [](v1::Tuning* row) { Merge("conditions { known: true other_processes: 2 }", row); });
  EXPECT_EQ(RefusalReasonOf(contended), v1::REFUSAL_REASON_EVIDENCE);
  EXPECT_EQ(contended.message(),
            "conditions: must be clean for MEASURED, say contended: 2 other processes on the GPU");
  for (const char* change :
       {"conditions { known: true ecc_errors: 1 }",
        "conditions { known: true clock_reasons: CLOCK_REASON_THERMAL_SLOWDOWN }"}) {
    EXPECT_EQ(ReasonOf(change), v1::REFUSAL_REASON_EVIDENCE) << change;
  }
  EXPECT_EQ(ReasonOf("conditions { known: true other_processes: 2 } evidence: EVIDENCE_INCOMPLETE "
                     "incomplete_message: 'contended: 2 other processes on the GPU'"),
            v1::REFUSAL_REASON_UNSPECIFIED);
}

TEST(BundleCodecTest, ReasonsTravelAsNumbers) {
  Tuning tuning = ValidTuning(1);
  tuning.evidence = Evidence::kIncomplete;
  AddReason(IncompleteReason::kSomeUnjudged, "could not be judged: 2 candidates", &tuning);
  AddReason(IncompleteReason::kStockFailed, "the stock choice failed", &tuning);
  tuning.candidates.back().status = CandidateStatus::kUnjudged;
  const auto read = [](const v1::Tuning& row) {
    const auto found = ReadRow(row);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or(Tuning());
  };
  const v1::Tuning row = ToBundleTuning(tuning, 1, true);
  EXPECT_EQ(row.incomplete_reasons_size(), 2);
  EXPECT_EQ(read(row).incomplete_reasons, tuning.incomplete_reasons);
  EXPECT_EQ(read(row).candidates.back().status, CandidateStatus::kUnjudged);
}

TEST(BundleCodecTest, ReasonsMustBeKnownAndAgreeWithTheEvidence) {
  EXPECT_EQ(ReasonOf("incomplete_reasons: INCOMPLETE_REASON_MEMORY"),
            v1::REFUSAL_REASON_EVIDENCE);  // of a row that is MEASURED
  for (const char* reasons :
       {"[INCOMPLETE_REASON_MEMORY, INCOMPLETE_REASON_MEMORY]", "0", "INCOMPLETE_REASON_OUTDATED",
        "31", "-1", "INCOMPLETE_REASON_UNJUDGED"}) {
    const std::string change =
        absl::StrCat("evidence: EVIDENCE_INCOMPLETE incomplete_reasons: ", reasons);
    EXPECT_EQ(ReasonOf(change.c_str()), v1::REFUSAL_REASON_EVIDENCE) << reasons;
  }
}

TEST(BundleCodecTest, ARefusalNamesTheFieldThatIsWrong) {
  const auto violation = [](const std::string& change) {
    const absl::Status status =
        StatusOf([&](v1::Tuning* row) { Merge("evidence: EVIDENCE_INCOMPLETE " + change, row); });
    return ViolationIn(status).value_or(Violation());
  };
  EXPECT_EQ(violation("origin: 4").field, "origin");
  for (const std::string field : {"other_processes", "ecc_errors", "retried_runs"}) {
    EXPECT_EQ(violation("conditions { " + field + ": -1 }").field, "conditions." + field);
  }
  const Violation twice =
      violation("incomplete_reasons: [INCOMPLETE_REASON_MEMORY, INCOMPLETE_REASON_MEMORY]");
  EXPECT_EQ(twice.field, "incomplete_reasons");
  EXPECT_EQ(twice.rule, "must be IncompleteReasons other than OUTDATED, each once");
  const absl::Status candidate =
      StatusOf([](v1::Tuning* row) { First(row)->mutable_engine_config()->set_engine_index(-1); });
  EXPECT_EQ(ViolationIn(candidate).value_or(Violation()).field,
            "candidates[0].engine_config.engine_index");
}

TEST(BundleCodecTest, NothingIsTimedOnAProfile) {
  Environment profile = SampleEnvironment();
  profile.profile = true;
  const auto read = FromBundleTuning(
      SampleRow(1), FromBundleEnvironment(ToBundleEnvironment(1, profile, {})), kNow);
  EXPECT_EQ(RefusalReasonOf(read.status()), v1::REFUSAL_REASON_EVIDENCE);
}

TEST(BundleCodecTest, TimesMustHaveCome) {
  EXPECT_EQ(ReasonOf([](auto* row) {
              *row->mutable_tune_time() = ToProto(kNow + (kNow - absl::UnixEpoch()));
            }),
            v1::REFUSAL_REASON_TIME);
  EXPECT_EQ(ReasonOf("tune_time { seconds: -1 }"), v1::REFUSAL_REASON_TIME);
}

TEST(BundleCodecTest, ATimeThatAClockWhichWasSetBackMadeNegativeIsNotKnown) {
  v1::Tuning row = SampleRow(1);
  *row.mutable_elapsed() = ToProto(absl::Milliseconds(-3'585'250));
  const absl::StatusOr<Tuning> tuning = ReadRow(row);
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->elapsed, absl::ZeroDuration());
}

TEST(BundleCodecTest, TimesMustHaveAJsonForm) {
  for (const char* change :
       {"tune_time { nanos: -1 }", "tune_time { nanos: 1000000000 }", "elapsed { nanos: -1 }",
        "elapsed { nanos: 1000000000 }", "elapsed { seconds: 9223372036854775807 }"}) {
    EXPECT_EQ(ReasonOf(change), v1::REFUSAL_REASON_TIME) << change;
  }
  EXPECT_EQ(ReasonOf("tune_time { nanos: 999999999 } elapsed { nanos: 999999999 }"),
            v1::REFUSAL_REASON_UNSPECIFIED);
}

TEST(BundleCodecTest, AnEnvironmentMustNotContradictItself) {
  const auto field = [](const std::string& change) {
    v1::BundleEnvironment environment = SampleBundleEnvironment();
    Merge(change, &environment);
    const BundleEnvironmentRow row = FromBundleEnvironment(environment);
    EXPECT_EQ(row.status.ok(), FromBundleTuning(SampleRow(1), row, kNow).ok());
    return ViolationIn(row.status).value_or(Violation()).field;
  };
  EXPECT_EQ(field(""), "");
  EXPECT_EQ(field("gpu_model: 'NVIDIA A100'"), "gpu_model");
  EXPECT_EQ(field("text: 'nvidia-h200'"), "text");
  EXPECT_EQ(field("provenance { node: '" + std::string(300, 'n') + "' }"), "provenance.node");
  EXPECT_EQ(field("provenance { gpu_uuid: 'a\\nb' }"), "provenance.gpu_uuid");
  EXPECT_EQ(field("provenance { memory_bytes: -1 }"), "provenance.memory_bytes");
}

}  // namespace
}  // namespace convtune::db::bundle
