#include "server/decision/correctness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "convtune/worker/worker.pb.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::decision {
namespace {

worker::v1::Checked Report(std::optional<double> error, double magnitude, int64_t nonfinite = 0,
                           const std::string& out_of_bounds = "") {
  worker::v1::Checked report;
  if (error) report.set_error(*error);
  report.set_magnitude(magnitude);
  report.set_nonfinite(nonfinite);
  report.set_out_of_bounds(out_of_bounds);
  return report;
}

using testing::HasSubstr;

constexpr char kShape[] = "fwd,x=1x512x14x14,w=512x512x3x3,pad=1,";

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

Candidate With(std::vector<NumericalNote> notes) {
  Candidate candidate;
  for (const NumericalNote note : notes) candidate.numerical_notes |= NoteBit(note);
  return candidate;
}

// Keeps `bits` bits of a number, the rest is cut or rounded away.
double Keep(double value, int bits, bool cut) {
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(value, &exponent), bits);
  return std::ldexp(cut ? std::trunc(scaled) : std::nearbyint(scaled), exponent - bits);
}

struct Simulated {
  double error = 0;
  double magnitude = 0;
};

// Sums of `n` products of a rectified and a normal value that have `input_bits`
// bits, rounded as `round_input`, added up as `add` says, and rounded as
// `round_output`: what 500 elements of an output differ by from exact ones.
Simulated Simulate(int n, int input_bits, const std::function<double(double)>& round_input,
                   const std::function<double(double)>& add,
                   const std::function<double(double)>& round_output) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  double difference = 0, largest = 0, magnitude = 0;
  for (int element = 0; element < 500; ++element) {
    double exact = 0, sum = 0, absolute = 0;
    for (int i = 0; i < n; ++i) {
      const double x = Keep(std::max(normal(random), 0.0), input_bits, false);
      const double w = Keep(normal(random), input_bits, false);
      exact += x * w;
      absolute += std::abs(x * w);
      sum = add(sum + round_input(x) * round_input(w));
    }
    difference = std::max(difference, std::abs(round_output(sum) - exact));
    largest = std::max(largest, std::abs(exact));
    magnitude = std::max(magnitude, absolute);
  }
  return {difference / largest, magnitude / largest};
}

double Same(double value) { return value; }

void ExpectExplained(const ConvProblem& problem, const Candidate& candidate,
                     const Simulated& simulated) {
  EXPECT_LE(simulated.error, ErrorBound(problem, candidate, simulated.magnitude));
  // A bound that allows everything says nothing: a hundredth is still caught.
  EXPECT_LT(ErrorBound(problem, candidate, simulated.magnitude), 0.1);
}

TEST(ErrorBoundTest, HoldsForSimulatedF32) {
  ExpectExplained(Problem(absl::StrCat(kShape, "f32")), {},
                  Simulate(
                      512 * 9, 24, Same, [](double sum) { return Keep(sum, 24, false); },
                      [](double out) { return Keep(out, 24, false); }));
}

TEST(ErrorBoundTest, HoldsForSimulatedTf32) {
  ExpectExplained(Problem(absl::StrCat(kShape, "f32")), With({NumericalNote::kTensorCore}),
                  Simulate(
                      512 * 9, 24, [](double in) { return Keep(in, 11, true); },
                      [](double sum) { return Keep(sum, 23, true); },
                      [](double out) { return Keep(out, 24, false); }));
}

TEST(ErrorBoundTest, HoldsForSimulatedF16AndBf16) {
  for (const auto& [type, bits] : {std::pair{"f16", 11}, {"bf16", 8}}) {
    ExpectExplained(Problem(absl::StrCat(kShape, "nhwc,", type)),
                    With({NumericalNote::kTensorCore}),
                    Simulate(
                        512 * 9, bits, Same, [](double sum) { return Keep(sum, 23, true); },
                        [bits = bits](double out) { return Keep(out, bits, false); }));
  }
}

TEST(ErrorBoundTest, HoldsForSimulatedFp8) {
  const Simulated simulated = Simulate(
      64 * 9, 4, Same, [](double sum) { return Keep(sum, 14, true); },
      [](double out) { return Keep(out, 4, false); });
  const ConvProblem problem = Problem("fwd,x=1x64x14x14,w=64x64x3x3,pad=1,nhwc,e4m3");
  EXPECT_LE(simulated.error, ErrorBound(problem, {}, simulated.magnitude));
}

TEST(ErrorBoundTest, FollowsTheNotes) {
  const ConvProblem problem = Problem(absl::StrCat(kShape, "f32"));
  const double direct = ErrorBound(problem, {}, 9);
  const double winograd = ErrorBound(problem, With({NumericalNote::kWinograd}), 9);
  const double tile4 =
      ErrorBound(problem, With({NumericalNote::kWinograd, NumericalNote::kWinogradTile4x4}), 9);
  const double tf32 = ErrorBound(problem, With({NumericalNote::kTensorCore}), 9);
  EXPECT_LT(direct, 0.01);
  EXPECT_LT(direct, winograd);
  EXPECT_LT(winograd, tile4);
  EXPECT_LT(direct, tf32);
  EXPECT_LT(direct, ErrorBound(problem, With({NumericalNote::kReducedPrecisionReduction}), 9));
}

TEST(ErrorBoundTest, FollowsTheTypes) {
  const double f64 = ErrorBound(Problem(absl::StrCat(kShape, "f64")), {}, 9);
  const double f32 = ErrorBound(Problem(absl::StrCat(kShape, "f32")), {}, 9);
  const double f16 = ErrorBound(Problem(absl::StrCat(kShape, "f16")), {}, 9);
  const double bf16 = ErrorBound(Problem(absl::StrCat(kShape, "bf16")), {}, 9);
  EXPECT_LT(f64, 1e-11);
  EXPECT_LT(f64, f32);
  EXPECT_LT(f32, f16);
  EXPECT_LT(f16, bf16);
  EXPECT_LT(bf16, 0.1);
}

TEST(ErrorBoundTest, NeverAllowsAQuarter) {
  const ConvProblem problem = Problem("bwd_filter,x=256x64x224x224,w=64x64x3x3,pad=1,f16");
  EXPECT_EQ(ErrorBound(problem, With({NumericalNote::kReducedPrecisionReduction}), 1000), 0.25);
  EXPECT_LT(ErrorBound(problem, {}, std::nan("")), 0.25);
}

// A sum of `n` products of which each of `blocks` adds up its part in f32 and then adds that to a
// number of `bits` bits in memory, one after the other, as atomics do. The last `missing` products
// are left out. Where all are positive no bound is wide for their cancelling.
Simulated SimulatePartialSums(int n, int blocks, int bits, int missing = 0, bool positive = false) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  double difference = 0, largest = 0, magnitude = 0;
  for (int element = 0; element < 150; ++element) {
    double exact = 0, memory = 0, absolute = 0;
    for (int block = 0; block < blocks; ++block) {
      double part = 0;
      for (int i = block * n / blocks; i < (block + 1) * n / blocks; ++i) {
        const double x = Keep(std::max(normal(random), 0.0), 8, false);
        const double w = Keep(normal(random), 8, false);
        const double product = x * (positive ? std::abs(w) : w);
        exact += product;
        absolute += std::abs(product);
        if (i < n - missing) part = Keep(part + product, 24, false);
      }
      memory = Keep(memory + Keep(part, bits, false), bits, false);
    }
    difference = std::max(difference, std::abs(memory - exact));
    largest = std::max(largest, std::abs(exact));
    magnitude = std::max(magnitude, absolute);
  }
  return {difference / largest, magnitude / largest};
}

Candidate Legacy(const ConvProblem& problem, int algorithm, bool deterministic) {
  Candidate candidate;
  const LegacyAlgorithm id{algorithm, /*math_type=*/1};
  candidate.id = id;
  candidate.numerical_notes =
      LegacyNotes(problem.operation(), problem.data_type(), problem.filter_extent(), id.algorithm,
                  id.math_type, deterministic);
  return candidate;
}

TEST(LegacyNotes, CoverAtomicsInHalf) {
  // ALGO_0 of both, and ALGO_3 of bwd_filter.
  const std::tuple<const char*, int, int> cases[] = {
      {"bwd_data,x=32x256x14x14,w=256x256x3x3,pad=1,nhwc,f16", 0, 256 * 9},
      {"bwd_filter,x=8x64x28x28,w=64x64x3x3,pad=1,nhwc,f16", 0, 8 * 28 * 28},
      {"bwd_filter,x=8x64x28x28,w=64x64x3x3,pad=1,f16", 3, 8 * 28 * 28}};
  for (const auto& [text, algorithm, products] : cases) {
    const ConvProblem problem = Problem(text);
    const Candidate legacy = Legacy(problem, algorithm, false);
    const Simulated simulated = SimulatePartialSums(products, 32, 11, 0, /*positive=*/true);
    const worker::v1::Checked report = Report(simulated.error, simulated.magnitude);
    EXPECT_FALSE(JudgeOutput(problem, legacy, report).fault) << text << " " << simulated.error;
    // It is the note that explains it.
    Candidate without = legacy;
    without.numerical_notes &= ~NoteBit(NumericalNote::kReducedPrecisionReduction);
    EXPECT_EQ(JudgeOutput(problem, without, report).fault, QuarantineReason::kWrongResult)
        << text << " " << simulated.error << " "
        << ErrorBound(problem, without, simulated.magnitude);
  }
}

class ReducedPrecisionTest : public testing::Test {
 protected:
  struct Case {
    const char* type;
    int bits;  // of the partial sums
    int blocks;
  };
  // bwd_filter's ALGO_1 may reduce in less in every type; 6272 products.
  static ConvProblem Filter(const std::string& type) {
    return Problem(absl::StrCat("bwd_filter,x=8x64x28x28,w=64x64x3x3,pad=1,", type));
  }
};

TEST_F(ReducedPrecisionTest, HonestPartialSumsLieWellWithinTheBound) {
  // With as many blocks as products each product is added to an f16.
  for (const Case& c : {Case{"f16", 11, 32}, Case{"f16", 11, 1024}, Case{"f16", 11, 6272},
                        Case{"f32", 11, 1024}, Case{"bf16", 8, 32}, Case{"bf16", 8, 1024}}) {
    const ConvProblem problem = Filter(c.type);
    const Simulated simulated = SimulatePartialSums(6272, c.blocks, c.bits);
    EXPECT_LE(2 * simulated.error,
              ErrorBound(problem, Legacy(problem, 1, true), simulated.magnitude))
        << c.type << " " << c.blocks << " " << simulated.error;
  }
}

TEST_F(ReducedPrecisionTest, AnEighthOfTheLargestValueIsFoundMissing) {
  for (const char* const type : {"f16", "f32"}) {
    const ConvProblem problem = Filter(type);
    // Of 64 parts one is lost.
    const Simulated simulated = SimulatePartialSums(6272, 64, 11, 6272 / 64);
    EXPECT_LT(simulated.error, 0.2);
    EXPECT_EQ(
        JudgeOutput(problem, Legacy(problem, 1, true), Report(simulated.error, simulated.magnitude))
            .fault,
        QuarantineReason::kWrongResult)
        << type << " " << simulated.error << " "
        << ErrorBound(problem, Legacy(problem, 1, true), simulated.magnitude);
  }
}

TEST_F(ReducedPrecisionTest, TheBoundIsNoLicenceForLongSums) {
  const ConvProblem problem = Problem("bwd_filter,x=32x64x56x56,w=64x64x1x1,f16");
  EXPECT_LT(ErrorBound(problem, Legacy(problem, 1, true), 30), 0.1);
}

TEST(JudgeOutputTest, SmallErrorsAreRight) {
  const ConvProblem problem = Problem(absl::StrCat(kShape, "f16"));
  EXPECT_FALSE(JudgeOutput(problem, {}, Report(1e-4, 9)).fault);
  EXPECT_FALSE(JudgeOutput(problem, {}, Report(std::nullopt, 0)).fault);
}

TEST(JudgeOutputTest, LargeErrorsNonfiniteOnesAndWritesOutOfBoundsAreWrong) {
  const ConvProblem problem = Problem(absl::StrCat(kShape, "f16"));
  for (const double error : {0.3, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const OutputVerdict finding = JudgeOutput(problem, {}, Report(error, 9));
    EXPECT_EQ(finding.fault, QuarantineReason::kWrongResult);
    EXPECT_THAT(finding.message, HasSubstr("differs from the reference by"));
  }
  const OutputVerdict nonfinite = JudgeOutput(problem, {}, Report(1e-4, 9, 12));
  EXPECT_EQ(nonfinite.fault, QuarantineReason::kNotFinite);
  EXPECT_THAT(nonfinite.message, HasSubstr("12 elements"));
  const OutputVerdict overwrites =
      JudgeOutput(problem, {}, Report(1e-4, 9, 0, "workspace: 4 bytes behind its end"));
  EXPECT_EQ(overwrites.fault, QuarantineReason::kOutOfBounds);
  EXPECT_THAT(overwrites.message, HasSubstr("workspace: 4 bytes behind its end"));
}

TEST(JudgeOutputTest, AnErrorThatTf32ExplainsIsNoFaultButANote) {
  const Simulated tf32 = Simulate(
      512 * 9, 24, [](double in) { return Keep(in, 11, true); },
      [](double sum) { return Keep(sum, 23, true); },
      [](double out) { return Keep(out, 24, false); });
  const worker::v1::Checked report = Report(tf32.error, tf32.magnitude);
  const ConvProblem f32 = Problem(absl::StrCat(kShape, "f32"));
  ASSERT_GT(tf32.error, ErrorBound(f32, {}, tf32.magnitude));
  const OutputVerdict unsaid = JudgeOutput(f32, {}, report);
  EXPECT_FALSE(unsaid.fault);
  EXPECT_TRUE(unsaid.uses_tf32);
  const OutputVerdict said = JudgeOutput(f32, With({NumericalNote::kTensorCore}), report);
  EXPECT_FALSE(said.fault);
  EXPECT_FALSE(said.uses_tf32);
  // A larger error is wrong, and f64 has no such excuse.
  const double beyond = 1.01 * ErrorBound(f32, With({NumericalNote::kTensorCore}), tf32.magnitude);
  EXPECT_EQ(JudgeOutput(f32, {}, Report(beyond, tf32.magnitude)).fault,
            QuarantineReason::kWrongResult);
  EXPECT_EQ(JudgeOutput(Problem(absl::StrCat(kShape, "f64")), {}, report).fault,
            QuarantineReason::kWrongResult);
}

// Votes of graph engines: of each, how many configs, and how many of them have
// the fault. The stock choice is engine 0's first.
struct Engine {
  int64_t engine;
  int configs;
  int faulty = 0;
};
std::vector<Vote> Votes(const std::vector<Engine>& engines,
                        QuarantineReason fault = QuarantineReason::kWrongResult) {
  std::vector<Vote> votes;
  for (const Engine& engine : engines) {
    for (int config = 0; config < engine.configs; ++config) {
      Vote vote;
      vote.candidate = EngineConfig{engine.engine, {{2, config}}};
      vote.is_stock = engine.engine == 0 && config == 0;
      if (config >= engine.configs - engine.faulty) vote.fault = fault;
      votes.push_back(vote);
    }
  }
  return votes;
}
Vote LegacyVote(int algorithm, bool faulty, bool is_stock = false) {
  Vote vote;
  vote.candidate = LegacyAlgorithm{algorithm, 0};
  vote.is_stock = is_stock;
  if (faulty) vote.fault = QuarantineReason::kWrongResult;
  return vote;
}
int Doubted(const std::vector<Vote>& votes) {
  const std::vector<bool> doubted = DoubtedFaults(votes);
  EXPECT_EQ(doubted.size(), votes.size());
  return static_cast<int>(std::count(doubted.begin(), doubted.end(), true));
}

TEST(DoubtedFaultsTest, EnginesVoteAndNotTheirConfigs) {
  // 31 of 43 configs, as in a plain convolution, but one engine of thirteen.
  std::vector<Engine> engines = {{0, 1}, {1, 31, 31}};
  for (int64_t engine = 2; engine < 13; ++engine) engines.push_back({engine, 1});
  EXPECT_EQ(Doubted(Votes(engines)), 0);
  // Few configs, but a third of the engines.
  EXPECT_EQ(Doubted(Votes({{0, 1}, {1, 31}, {2, 1, 1}})), 1);
}

TEST(DoubtedFaultsTest, OfMoreThanAQuarterOfTheEnginesAFaultIsDoubted) {
  EXPECT_EQ(Doubted(Votes({{0, 1}, {1, 1, 1}, {2, 1}, {3, 1}})), 0);
  EXPECT_EQ(Doubted(Votes({{0, 1}, {1, 1, 1}, {2, 1}})), 1);
  EXPECT_EQ(Doubted(Votes({{0, 1}, {1, 1, 1}, {2, 1, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}})), 2);
  EXPECT_EQ(Doubted(Votes({})), 0);
}

TEST(DoubtedFaultsTest, ALoneCandidateIsNotBlamed) { EXPECT_EQ(Doubted(Votes({{5, 1, 1}})), 1); }

TEST(DoubtedFaultsTest, EachFaultIsVotedOnByItself) {
  std::vector<Vote> votes = Votes({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1, 1}});
  votes[1].fault = QuarantineReason::kNotFinite;
  votes[2].fault = QuarantineReason::kOutOfBounds;
  EXPECT_EQ(Doubted(votes), 0);
}

TEST(DoubtedFaultsTest, AWriteOutOfBoundsIsDoubtedToo) {
  EXPECT_EQ(Doubted(Votes({{0, 1}, {1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1}},
                          QuarantineReason::kOutOfBounds)),
            3);
}

TEST(DoubtedFaultsTest, AStockChoiceIsNeverBlamedNorTheRestOfItsEngine) {
  std::vector<Engine> engines = {{0, 3, 3}};
  for (int64_t engine = 1; engine < 12; ++engine) engines.push_back({engine, 1});
  EXPECT_EQ(Doubted(Votes(engines)), 3);
  // Other configs of its engine may be.
  engines[0].faulty = 2;
  EXPECT_EQ(Doubted(Votes(engines)), 0);
}

TEST(DoubtedFaultsTest, AWholeApiIsNeverBlamed) {
  std::vector<Engine> engines;
  for (int64_t engine = 0; engine < 12; ++engine) engines.push_back({engine, 1});
  std::vector<Vote> votes = Votes(engines);
  votes.push_back(LegacyVote(1, true));
  votes.push_back(LegacyVote(2, true));
  EXPECT_EQ(Doubted(votes), 2);
  votes.push_back(LegacyVote(3, false));
  EXPECT_EQ(Doubted(votes), 0);
  votes.push_back(LegacyVote(0, true, /*is_stock=*/true));
  EXPECT_EQ(Doubted(votes), 1);
}

}  // namespace
}  // namespace convtune::decision
