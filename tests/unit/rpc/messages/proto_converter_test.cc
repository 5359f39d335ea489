#include "server/rpc/messages/proto_converter.h"

#include <gtest/gtest.h>

#include "tests/unit/rpc/fake_tuner.h"

namespace convtune::rpc::messages {
namespace {

const char kProblem[] = "bwd_data,x=1x2x3x3,w=4x2x1x1";

v1::Candidate Filled(const Candidate& candidate, Operation operation) {
  v1::Candidate out;
  Fill(candidate, operation, &out);
  return out;
}

TEST(ProtoConverter, DeterminismFollowsFromTheNote) {
  Candidate candidate = TestCandidate("legacy:algo0,math1", 12.5);
  EXPECT_TRUE(Filled(candidate, Operation::kBwdData).deterministic());
  candidate.numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  EXPECT_FALSE(Filled(candidate, Operation::kBwdData).deterministic());
}

TEST(ProtoConverter, CandidateKeepsEveryField) {
  Candidate candidate = TestCandidate("graph:eng34,k2=5,k3=0", 12.5);
  candidate.numerical_notes =
      NoteBit(NumericalNote::kTensorCore) | NoteBit(NumericalNote::kWinogradTile13x13);
  candidate.behavior_notes = NoteBit(BehaviorNote::kCublasLtDependency);
  candidate.workspace_bytes = 4096;
  candidate.heuristic_rank = 3;
  candidate.error_message = "e";
  candidate.find_us = 9;
  candidate.q1_us = 12;
  candidate.q3_us = 13;
  const v1::Candidate out = Filled(candidate, Operation::kFwd);
  EXPECT_EQ(out.engine_config().engine_index(), 34);
  ASSERT_EQ(out.engine_config().knob_types_size(), 2);
  EXPECT_EQ(out.engine_config().knob_types(0), 2);
  EXPECT_EQ(out.engine_config().knob_values(0), 5);
  EXPECT_EQ(out.text(), "graph:eng34,k2=5,k3=0");
  ASSERT_EQ(out.numerical_notes_size(), 2);
  EXPECT_EQ(out.numerical_notes(0), v1::NUMERICAL_NOTE_TENSOR_CORE);
  EXPECT_EQ(out.numerical_notes(1), v1::NUMERICAL_NOTE_WINOGRAD_TILE_13X13);
  ASSERT_EQ(out.behavior_notes_size(), 1);
  EXPECT_EQ(out.behavior_notes(0), v1::BEHAVIOR_NOTE_CUBLASLT_DEPENDENCY);
  EXPECT_TRUE(out.deterministic());
  EXPECT_EQ(out.workspace_bytes(), 4096);
  EXPECT_EQ(out.status(), v1::CANDIDATE_STATUS_TIMED);
  EXPECT_EQ(out.median_us(), 12.5);
  EXPECT_EQ(out.q1_us(), 12);
  EXPECT_EQ(out.q3_us(), 13);
  EXPECT_EQ(out.sample_count(), 1);
  EXPECT_EQ(out.error_message(), "e");
  EXPECT_EQ(out.heuristic_rank(), 3);
  EXPECT_EQ(out.find_us(), 9);
}

TEST(ProtoConverter, CandidateKeepsWhatTheTimerFound) {
  Candidate candidate = TestCandidate("graph:eng34", 12.5);
  EXPECT_FALSE(Filled(candidate, Operation::kFwd).has_error());
  candidate.low_us = 12.25;
  candidate.high_us = 12.75;
  candidate.host_us = 4;
  candidate.sm_clock_mhz = 1755;
  candidate.error = 0;
  candidate.capture = CaptureSupport::kNo;
  candidate.other_times = {{LaunchMode::kGraphCapture, CacheState::kHot, 9, 8.5, 9.5, 12}};
  const v1::Candidate out = Filled(candidate, Operation::kFwd);
  EXPECT_EQ(out.low_us(), 12.25);
  EXPECT_EQ(out.high_us(), 12.75);
  EXPECT_EQ(out.host_us(), 4);
  EXPECT_EQ(out.sm_clock_mhz(), 1755);
  EXPECT_TRUE(out.has_error());
  EXPECT_EQ(out.capture(), v1::CAPTURE_SUPPORT_NO);
  ASSERT_EQ(out.other_times_size(), 1);
  EXPECT_EQ(out.other_times(0).launch(), v1::LAUNCH_MODE_GRAPH_CAPTURE);
  EXPECT_EQ(out.other_times(0).cache_state(), v1::CACHE_STATE_HOT);
  EXPECT_EQ(out.other_times(0).median_us(), 9);
  EXPECT_EQ(out.other_times(0).low_us(), 8.5);
  EXPECT_EQ(out.other_times(0).high_us(), 9.5);
  EXPECT_EQ(out.other_times(0).sample_count(), 12);
}

TEST(ProtoConverter, TuningKeepsWhyItsRaceEndedAndHowTheCardWas) {
  Tuning tuning;
  tuning.key = {ConvProblem::Parse(kProblem)->ToText(), ""};
  EXPECT_FALSE(ToProto(tuning, v1::Environment()).has_conditions());
  tuning.stop_reason = StopReason::kNoiseSettled;
  tuning.rounds = 93;
  tuning.conditions.known = true;
  tuning.conditions.other_processes = 2;
  tuning.conditions.clock_reasons = static_cast<uint32_t>(ClockReason::kPowerCap);
  tuning.conditions.compute_mode = ComputeMode::kExclusiveProcess;
  const v1::Tuning out = ToProto(tuning, v1::Environment());
  EXPECT_EQ(out.stop_reason(), v1::STOP_REASON_NOISE_SETTLED);
  EXPECT_EQ(out.rounds(), 93);
  EXPECT_EQ(out.cache_state(), v1::CACHE_STATE_INPUT_HOT);
  ASSERT_EQ(out.conditions().marks_size(), 1);
  EXPECT_EQ(out.conditions().marks(0), "contended: 2 other processes on the GPU");
  ASSERT_EQ(out.conditions().clock_reasons_size(), 1);
  EXPECT_EQ(out.conditions().clock_reasons(0), v1::CLOCK_REASON_POWER_CAP);
  EXPECT_EQ(out.conditions().compute_mode(), v1::COMPUTE_MODE_EXCLUSIVE_PROCESS);
}

TEST(ProtoConverter, ATuningWithoutARaceSaysWhichInstrumentsFailed) {
  Tuning tuning;
  tuning.key = {ConvProblem::Parse(kProblem)->ToText(), ""};
  tuning.conditions.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kClock) |
                                 static_cast<uint32_t>(SelfCheckBit::kCaptures);
  const v1::SelfCheck check = ToProto(tuning, v1::Environment()).conditions().self_check();
  EXPECT_TRUE(check.known());
  ASSERT_EQ(check.failed_size(), 2);
  EXPECT_EQ(check.failed(0), "clock");
  EXPECT_EQ(check.failed(1), "captures");
}

TEST(ProtoConverter, LegacyNamesDependOnTheOperation) {
  const Candidate candidate = TestCandidate("legacy:algo1,math2", 1);
  const v1::Candidate fwd = Filled(candidate, Operation::kFwd);
  const v1::Candidate bwd = Filled(candidate, Operation::kBwdData);
  EXPECT_EQ(fwd.legacy_algorithm().algorithm(), 1);
  EXPECT_EQ(fwd.legacy_algorithm().math_type(), 2);
  EXPECT_EQ(fwd.legacy_algorithm().algorithm_name(), "IMPLICIT_PRECOMP_GEMM");
  EXPECT_NE(bwd.legacy_algorithm().algorithm_name(), fwd.legacy_algorithm().algorithm_name());
  EXPECT_EQ(fwd.samples_ns_size(), 0);
}

TEST(ProtoConverter, TuningMarksWinnerAndStockChoice) {
  Tuning tuning;
  tuning.key = FakeTuner::Key(ConvProblem::Parse(kProblem).value());
  tuning.candidates = {TestCandidate("graph:eng1", 1), TestCandidate("graph:eng2", 2),
                       TestCandidate("graph:eng3", 3)};
  tuning.candidates[0].heuristic_rank = 4;
  tuning.candidates[1].heuristic_rank = 1;
  tuning.candidates[2].heuristic_rank = 0;
  tuning.candidates[2].status = CandidateStatus::kUnsupported;
  const v1::Tuning out = ToProto(tuning, v1::Environment());
  EXPECT_EQ(out.winner(), "graph:eng1");
  EXPECT_FALSE(out.candidates(0).stock());
  EXPECT_TRUE(out.candidates(1).stock());
  EXPECT_FALSE(out.candidates(2).stock());
  EXPECT_EQ(out.problem().operation(), v1::OPERATION_BWD_DATA);
  EXPECT_EQ(out.candidate_count(), 3);
}

TEST(ProtoConverter, TheGraphApisStockChoiceIsMarkedWhereBothHaveOne) {
  Tuning tuning;
  tuning.key = FakeTuner::Key(ConvProblem::Parse(kProblem).value());
  tuning.candidates = {TestCandidate("legacy:algo1,math0", 1), TestCandidate("graph:eng2", 2)};
  tuning.candidates[0].heuristic_rank = 0;
  tuning.candidates[1].heuristic_rank = 1;
  v1::Tuning out = ToProto(tuning, v1::Environment());
  EXPECT_FALSE(out.candidates(0).stock());
  EXPECT_TRUE(out.candidates(1).stock());
  tuning.candidates.pop_back();
  out = ToProto(tuning, v1::Environment());
  EXPECT_TRUE(out.candidates(0).stock());
}

TEST(ProtoConverter, AnEnvironmentThatIsNotKnownIsWhatItsTextSays) {
  Environment environment = TestEnvironment();
  environment.gpu_model = "NVIDIA H200";
  v1::Environment known = ToProto(environment);
  known.set_tuning_count(5);
  const v1::Environment found = FindEnvironment({known}, environment.ToText());
  EXPECT_EQ(found.gpu_model(), "NVIDIA H200");
  EXPECT_EQ(found.tuning_count(), 5);
  const v1::Environment read = FindEnvironment({}, environment.ToText());
  EXPECT_EQ(read.name(), "nvidia-h200");
  EXPECT_EQ(read.text(), environment.ToText());
  EXPECT_EQ(read.compute_capability(), "9.0");
  EXPECT_EQ(read.cudnn_version(), "9.19.0");
  EXPECT_EQ(read.library_configuration(), v1::LIBRARY_CONFIGURATION_FULL);
}

TEST(ProtoConverter, TimesAreClampedToWhatTheApiHolds) {
  EXPECT_EQ(ToProto(absl::InfiniteFuture()).seconds(), 253402300799);
  EXPECT_EQ(ToProto(absl::InfinitePast()).seconds(), -62135596800);
  EXPECT_EQ(ToProto(absl::InfiniteDuration()).seconds(), 315576000000);
  EXPECT_EQ(ToProto(absl::UnixEpoch() - absl::Nanoseconds(1)).seconds(), -1);
  EXPECT_EQ(ToProto(absl::UnixEpoch() - absl::Nanoseconds(1)).nanos(), 999999999);
}

TEST(ProtoConverter, PinWithoutEndHasNoExpireTime) {
  Pin pin{FakeTuner::Key(ConvProblem::Parse(kProblem).value()),
          LegacyAlgorithm{1, 0},
          "why",
          absl::UnixEpoch(),
          std::nullopt,
          5};
  const v1::PinRecord out = ToProto(pin);
  EXPECT_EQ(out.candidate(), "legacy:algo1,math0");
  EXPECT_EQ(out.environment(), "nvidia-h200");
  EXPECT_EQ(out.reason(), "why");
  EXPECT_EQ(out.fleet_pin(), 5);
  EXPECT_FALSE(out.has_expire_time());
}

}  // namespace
}  // namespace convtune::rpc::messages
