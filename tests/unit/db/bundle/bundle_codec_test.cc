#include "db/bundle/bundle_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

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

v1::Candidate* First(v1::Tuning* row) { return row->mutable_candidates(0); }

TEST(BundleCodecTest, ASoundRowIsTaken) {
  EXPECT_EQ(ReasonOf([](auto*) {}), v1::REFUSAL_REASON_UNSPECIFIED);
}

TEST(BundleCodecTest, TheProblemMustBeOneInItsCanonicalForm) {
  EXPECT_EQ(ReasonOf([](auto* row) { row->set_problem_text("fwd"); }), v1::REFUSAL_REASON_PROBLEM);
  EXPECT_EQ(ReasonOf([](auto* row) { row->set_problem_text("fwd,x=1x1x1x1,w=1x1x1x1"); }),
            v1::REFUSAL_REASON_PROBLEM);
  EXPECT_EQ(ReasonOf([](auto* row) { row->set_problem_text("../../etc/passwd"); }),
            v1::REFUSAL_REASON_PROBLEM);
}

TEST(BundleCodecTest, CandidatesMustBeSome) {
  EXPECT_EQ(ReasonOf([](auto* row) { First(row)->clear_kind(); }), v1::REFUSAL_REASON_CANDIDATE);
  const auto with_knobs = [](const std::vector<int>& types, size_t values) {
    return ReasonOf([&](auto* row) {
      v1::EngineConfig* config = First(row)->mutable_engine_config();
      config->Clear();
      for (const int type : types) config->add_knob_types(type);
      for (size_t i = 0; i < values; ++i) config->add_knob_values(1);
    });
  };
  EXPECT_EQ(with_knobs({2, 3}, 2), v1::REFUSAL_REASON_UNSPECIFIED);
  EXPECT_EQ(with_knobs({3, 2}, 2), v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(with_knobs({2, 2}, 2), v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(with_knobs({2, 3}, 1), v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(with_knobs({-1, 3}, 2), v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(ReasonOf([](auto* row) { First(row)->mutable_engine_config()->set_engine_index(-1); }),
            v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(ReasonOf([](auto* row) { First(row)->mutable_legacy_algorithm()->set_algorithm(-1); }),
            v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(ReasonOf([](auto* row) { First(row)->mutable_legacy_algorithm()->set_math_type(-1); }),
            v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(ReasonOf([](auto* row) {
              *First(row)->mutable_engine_config() = row->candidates(1).engine_config();
            }),
            v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(ReasonOf([](auto* row) { First(row)->set_status(v1::CANDIDATE_STATUS_UNSPECIFIED); }),
            v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(
      ReasonOf([](auto* row) { First(row)->set_status(static_cast<v1::CandidateStatus>(99)); }),
      v1::REFUSAL_REASON_CANDIDATE);
  EXPECT_EQ(ReasonOf([](auto* row) {
              First(row)->add_numerical_notes(static_cast<v1::NumericalNote>(32));
            }),
            v1::REFUSAL_REASON_CANDIDATE);
}

TEST(BundleCodecTest, NumbersMustBeSuchAsAMeasurementGives) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto is_measurement = [](const std::function<void(v1::Candidate*)>& change) {
    return ReasonOf([&](auto* row) { change(First(row)); }) == v1::REFUSAL_REASON_MEASUREMENT;
  };
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_median_us(kNan); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_median_us(-1); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_q3_us(1e30F); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_find_us(kNan); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_sample_count(0); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_sample_count(-1); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_sample_count(1'000'000); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_samples_ns(0, -1); }));
  EXPECT_TRUE(is_measurement([](auto* c) { c->set_workspace_bytes(-1); }));
  // A median far below every sample.
  EXPECT_TRUE(is_measurement([](auto* c) {
    c->set_q1_us(0.1F);
    c->set_median_us(0.1F);
    c->set_q3_us(0.1F);
  }));
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
  for (const auto& [known, name] : {std::pair(false, "clock"), std::pair(true, "hammer")}) {
    EXPECT_EQ(ReasonOf([known = known, name = name](v1::Tuning* row) {
                v1::SelfCheck* check = row->mutable_conditions()->mutable_self_check();
                check->set_known(known);
                check->add_failed(name);
              }),
              v1::REFUSAL_REASON_MEASUREMENT);
  }
}

TEST(BundleCodecTest, ConditionsMustBeSuchAsNvmlGives) {
  const auto reason = [](const std::function<void(v1::Conditions*)>& change) {
    return ReasonOf([&change](v1::Tuning* row) {
      row->mutable_conditions()->set_known(true);
      change(row->mutable_conditions());
    });
  };
  EXPECT_EQ(reason([](auto*) {}), v1::REFUSAL_REASON_UNSPECIFIED);
  for (const v1::RefusalReason refused :
       {reason([](auto* row) { row->set_other_processes(-1); }),
        reason([](auto* row) { row->set_ecc_errors(-1); }),
        reason([](auto* row) { row->set_retried_runs(-1); }),
        reason([](auto* row) { row->set_unblocked(std::string(65537, 'x')); }),
        reason([](auto* row) { row->set_power_limit_watts(-0.5F); }), reason([](auto* row) {
          row->set_power_limit_watts(std::numeric_limits<float>::quiet_NaN());
        }),
        reason([](auto* row) { row->set_compute_mode(static_cast<v1::ComputeMode>(5)); }),
        reason([](auto* row) { row->set_compute_mode(static_cast<v1::ComputeMode>(-1)); })}) {
    EXPECT_EQ(refused, v1::REFUSAL_REASON_MEASUREMENT);
  }
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
  const auto with = [](const std::function<void(v1::TimeSummary*)>& change) {
    return ReasonOf([&](auto* row) {
      v1::TimeSummary* time = First(row)->add_other_times();
      time->set_launch(v1::LAUNCH_MODE_EAGER);
      time->set_cache_state(v1::CACHE_STATE_HOT);
      time->set_median_us(9);
      time->set_low_us(8);
      time->set_high_us(10);
      time->set_sample_count(3);
      change(First(row)->add_other_times());
    });
  };
  const auto later = [](v1::TimeSummary* time) {
    time->set_launch(v1::LAUNCH_MODE_GRAPH_CAPTURE);
    time->set_cache_state(v1::CACHE_STATE_COLD);
    time->set_sample_count(1);
  };
  EXPECT_EQ(with(later), v1::REFUSAL_REASON_UNSPECIFIED);
  EXPECT_EQ(with([](auto*) {}), v1::REFUSAL_REASON_MEASUREMENT);
  EXPECT_EQ(with([&](auto* time) {
              later(time);
              time->set_launch(v1::LAUNCH_MODE_EAGER);
            }),
            v1::REFUSAL_REASON_MEASUREMENT);
  EXPECT_EQ(with([&](auto* time) {
              later(time);
              time->set_low_us(5);
            }),
            v1::REFUSAL_REASON_MEASUREMENT);
}

TEST(BundleCodecTest, EvidenceMustNotClaimMoreThanTheCandidatesShow) {
  EXPECT_EQ(ReasonOf([](auto* row) { row->clear_candidates(); }), v1::REFUSAL_REASON_EVIDENCE);
  EXPECT_EQ(ReasonOf([](auto* row) { row->set_evidence(static_cast<v1::Evidence>(41)); }),
            v1::REFUSAL_REASON_EVIDENCE);
  EXPECT_EQ(ReasonOf([](auto* row) { row->set_evidence(v1::EVIDENCE_UNSPECIFIED); }),
            v1::REFUSAL_REASON_EVIDENCE);
  EXPECT_EQ(ReasonOf([](auto* row) { row->set_incomplete_message("the budget ended"); }),
            v1::REFUSAL_REASON_EVIDENCE);
}

TEST(BundleCodecTest, WhatCallsItselfContendedIsNotMeasured) {
  const auto status = [](const std::function<void(v1::Tuning*)>& change) {
    return StatusOf([&change](v1::Tuning* row) {
      row->mutable_conditions()->set_known(true);
      change(row);
    });
  };
  const absl::Status contended =
      status([](auto* row) { row->mutable_conditions()->set_other_processes(2); });
  EXPECT_EQ(RefusalReasonOf(contended), v1::REFUSAL_REASON_EVIDENCE);
  EXPECT_EQ(contended.message(),
            "conditions: must be clean for MEASURED, say contended: 2 other processes on the GPU");
  EXPECT_FALSE(status([](auto* row) { row->mutable_conditions()->set_ecc_errors(1); }).ok());
  EXPECT_FALSE(status([](auto* row) {
                 row->mutable_conditions()->add_clock_reasons(v1::CLOCK_REASON_THERMAL_SLOWDOWN);
               }).ok());
  EXPECT_TRUE(status([](auto* row) {
                row->mutable_conditions()->set_other_processes(2);
                row->set_evidence(v1::EVIDENCE_INCOMPLETE);
                row->set_incomplete_message("contended: 2 other processes on the GPU");
              }).ok());
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
  EXPECT_EQ(ReasonOf([](auto* row) { row->add_incomplete_reasons(v1::INCOMPLETE_REASON_MEMORY); }),
            v1::REFUSAL_REASON_EVIDENCE);  // of a row that is MEASURED
  EXPECT_EQ(ReasonOf([](auto* row) {
              row->set_evidence(v1::EVIDENCE_INCOMPLETE);
              for (int i = 0; i < 2; ++i) row->add_incomplete_reasons(v1::INCOMPLETE_REASON_MEMORY);
            }),
            v1::REFUSAL_REASON_EVIDENCE);
  const auto incomplete = [](int reason) {
    return ReasonOf([reason](auto* row) {
      row->set_evidence(v1::EVIDENCE_INCOMPLETE);
      row->add_incomplete_reasons(static_cast<v1::IncompleteReason>(reason));
    });
  };
  for (const int reason : {0, static_cast<int>(v1::INCOMPLETE_REASON_OUTDATED), 31, -1}) {
    EXPECT_EQ(incomplete(reason), v1::REFUSAL_REASON_EVIDENCE) << reason;
  }
  EXPECT_EQ(incomplete(v1::INCOMPLETE_REASON_UNJUDGED), v1::REFUSAL_REASON_EVIDENCE);
}

TEST(BundleCodecTest, ARefusalNamesTheFieldThatIsWrong) {
  const auto violation = [](const std::function<void(v1::Tuning*)>& change) {
    const absl::Status status = StatusOf([&change](v1::Tuning* row) {
      row->set_evidence(v1::EVIDENCE_INCOMPLETE);
      change(row);
    });
    return ViolationIn(status).value_or(Violation());
  };
  EXPECT_EQ(violation([](auto* row) { row->set_origin(static_cast<v1::Origin>(4)); }).field,
            "origin");
  const auto conditions = [](auto* row) { return row->mutable_conditions(); };
  EXPECT_EQ(violation([&](auto* row) { conditions(row)->set_other_processes(-1); }).field,
            "conditions.other_processes");
  EXPECT_EQ(violation([&](auto* row) { conditions(row)->set_ecc_errors(-1); }).field,
            "conditions.ecc_errors");
  EXPECT_EQ(violation([&](auto* row) { conditions(row)->set_retried_runs(-1); }).field,
            "conditions.retried_runs");
  const Violation twice = violation([](auto* row) {
    for (int i = 0; i < 2; ++i) row->add_incomplete_reasons(v1::INCOMPLETE_REASON_MEMORY);
  });
  EXPECT_EQ(twice.field, "incomplete_reasons");
  EXPECT_EQ(twice.rule, "must be IncompleteReasons other than OUTDATED, each once");
  EXPECT_EQ(
      violation([](auto* row) { First(row)->mutable_engine_config()->set_engine_index(-1); }).field,
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
  EXPECT_EQ(ReasonOf([](auto* row) { row->mutable_tune_time()->set_seconds(-1); }),
            v1::REFUSAL_REASON_TIME);
}

TEST(BundleCodecTest, ATimeThatAClockWhichWasSetBackMadeNegativeIsNotKnown) {
  v1::Tuning row = SampleRow(1);
  *row.mutable_elapsed() = ToProto(absl::Milliseconds(-3'585'250));
  const absl::StatusOr<Tuning> tuning = ReadRow(row);
  ASSERT_TRUE(tuning.ok()) << tuning.status();
  EXPECT_EQ(tuning->elapsed, absl::ZeroDuration());
}

TEST(BundleCodecTest, TimesMustHaveAJsonForm) {
  for (const int nanos : {-1, 1'000'000'000}) {
    EXPECT_EQ(ReasonOf([nanos](auto* row) { row->mutable_tune_time()->set_nanos(nanos); }),
              v1::REFUSAL_REASON_TIME);
    EXPECT_EQ(ReasonOf([nanos](auto* row) { row->mutable_elapsed()->set_nanos(nanos); }),
              v1::REFUSAL_REASON_TIME);
  }
  EXPECT_EQ(ReasonOf([](auto* row) { row->mutable_elapsed()->set_seconds(INT64_MAX); }),
            v1::REFUSAL_REASON_TIME);
  EXPECT_EQ(ReasonOf([](auto* row) {
              row->mutable_tune_time()->set_nanos(999'999'999);
              row->mutable_elapsed()->set_nanos(999'999'999);
            }),
            v1::REFUSAL_REASON_UNSPECIFIED);
}

TEST(BundleCodecTest, AnEnvironmentMustNotContradictItself) {
  const auto field = [](const std::function<void(v1::BundleEnvironment*)>& change) {
    v1::BundleEnvironment environment = SampleBundleEnvironment();
    change(&environment);
    const BundleEnvironmentRow row = FromBundleEnvironment(environment);
    EXPECT_EQ(row.status.ok(), FromBundleTuning(SampleRow(1), row, kNow).ok());
    return ViolationIn(row.status).value_or(Violation()).field;
  };
  EXPECT_EQ(field([](auto*) {}), "");
  EXPECT_EQ(field([](auto* e) { e->set_gpu_model("NVIDIA A100"); }), "gpu_model");
  EXPECT_EQ(field([](auto* e) { e->set_text("nvidia-h200"); }), "text");
  EXPECT_EQ(field([](auto* e) { e->mutable_provenance()->set_node(std::string(300, 'n')); }),
            "provenance.node");
  EXPECT_EQ(field([](auto* e) { e->mutable_provenance()->set_gpu_uuid("a\nb"); }),
            "provenance.gpu_uuid");
  EXPECT_EQ(field([](auto* e) { e->mutable_provenance()->set_memory_bytes(-1); }),
            "provenance.memory_bytes");
}

}  // namespace
}  // namespace convtune::db::bundle
