#include "server/rpc/messages/proto_converter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rpc/fake_tuner.h"

namespace convtune::rpc::messages {
namespace {

using ::testing::ElementsAre;

const char kProblem[] = "bwd_data,x=1x2x3x3,w=4x2x1x1";

v1::Candidate Filled(const Candidate& candidate, Operation operation) {
  v1::Candidate out;
  Fill(candidate, operation, &out);
  return out;
}

TEST(ProtoConverter, DeterminismFollowsFromTheNote) {
  Candidate candidate = TestCandidate("legacy:algo0,math1", 12.5);
  EXPECT_EQ(Filled(candidate, Operation::kBwdData).text(), "legacy:algo0,math1");
  EXPECT_TRUE(Filled(candidate, Operation::kBwdData).deterministic());
  candidate.numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  EXPECT_FALSE(Filled(candidate, Operation::kBwdData).deterministic());
}

TEST(ProtoConverter, TuningSaysHowTheCardAndItsInstrumentsWere) {
  Tuning tuning;
  tuning.key = FakeTuner::Key(ConvProblem::Parse(kProblem).value());
  EXPECT_FALSE(ToProto(tuning, v1::Environment()).has_conditions());
  tuning.conditions.known = true;
  tuning.conditions.other_processes = 2;
  tuning.conditions.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kClock) |
                                 static_cast<uint32_t>(SelfCheckBit::kCaptures);
  const v1::Conditions out = ToProto(tuning, v1::Environment()).conditions();
  EXPECT_THAT(out.marks(), ElementsAre("contended: 2 other processes on the GPU"));
  EXPECT_THAT(out.self_check().failed(), ElementsAre("clock", "captures"));
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
