#include "server/tuner/decision/correctness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"

namespace convtune {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_LT(tf32, ErrorBound(problem, With({NumericalNote::kReducedPrecisionReduction}), 9));
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

TEST(JudgeOutputTest, SmallErrorsAreRight) {
  const ConvProblem problem = Problem(absl::StrCat(kShape, "f16"));
  EXPECT_THAT(JudgeOutput(problem, {}, {1e-4, 9, 0, ""}).why, IsEmpty());
  EXPECT_THAT(JudgeOutput(problem, {}, {std::nullopt, 0, 0, ""}).why, IsEmpty());
}

TEST(JudgeOutputTest, LargeErrorsAndNonfiniteOnesAreWrongByTheReference) {
  const ConvProblem problem = Problem(absl::StrCat(kShape, "f16"));
  for (const double error : {0.3, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Verdict verdict = JudgeOutput(problem, {}, {error, 9, 0, ""});
    EXPECT_THAT(verdict.why, HasSubstr("differs from the reference by"));
    EXPECT_FALSE(verdict.certain);
  }
  const Verdict verdict = JudgeOutput(problem, {}, {1e-4, 9, 12, ""});
  EXPECT_THAT(verdict.why, HasSubstr("12 elements"));
  EXPECT_FALSE(verdict.certain);
}

TEST(JudgeOutputTest, WritesOutOfBoundsAreWrongForCertain) {
  const Verdict verdict = JudgeOutput(Problem(absl::StrCat(kShape, "f16")), {},
                                      {1e-4, 9, 0, "workspace: 4 bytes behind its end"});
  EXPECT_THAT(verdict.why, HasSubstr("workspace: 4 bytes behind its end"));
  EXPECT_TRUE(verdict.certain);
}

TEST(ReferenceIsDoubtfulTest, IfMostDiffer) {
  const Verdict right;
  const Verdict wrong = {"differs", false};
  const Verdict overwrites = {"wrote", true};
  EXPECT_FALSE(ReferenceIsDoubtful({}));
  EXPECT_FALSE(ReferenceIsDoubtful({wrong}));
  EXPECT_FALSE(ReferenceIsDoubtful({right, wrong}));
  EXPECT_TRUE(ReferenceIsDoubtful({wrong, wrong}));
  EXPECT_TRUE(ReferenceIsDoubtful({wrong, wrong, right}));
  EXPECT_FALSE(ReferenceIsDoubtful({overwrites, overwrites, right}));
}

}  // namespace
}  // namespace convtune
