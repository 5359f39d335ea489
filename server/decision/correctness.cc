#include "server/decision/correctness.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "convtune/worker/worker.pb.h"

namespace convtune::decision {
namespace {

constexpr double kLargestBound = 0.25;
constexpr double kSafety = 2;
// The sum of n rounding errors is taken to be 8 standard deviations at most, as if they were
// independent.
constexpr double kDeviations = 8;
// Partial sums of an element that a kernel adds up in less than f32: one for each block of
// threads, of which more than a few hundred have nothing to do in parallel.
constexpr double kMostPartialSums = 1024;
// A fault is believed of at most one engine in so many.
constexpr size_t kEnginesPerFaulty = 4;

// Largest error of rounding to the nearest value of a type, in units of the largest value.
double RoundingError(DataType type) {
  if (type == DataType::kI8) return 1.0 / 127;  // sums reach the end of the range
  if (type == DataType::kI32) return 0x1p-24;   // exact, but for a conversion by way of f32
  return UnitRoundoff(type);
}

bool IsFp8(DataType type) { return type == DataType::kE4M3 || type == DataType::kE5M2; }

double AccumulationError(const ConvProblem& problem, const Candidate& candidate) {
  if (problem.compute_type() == DataType::kI32) return 0;
  double error = RoundingError(problem.compute_type());
  const bool narrow =
      problem.data_type() != DataType::kF64 && problem.data_type() != DataType::kF32;
  if (narrow || candidate.has(NumericalNote::kTensorCore)) error = std::max(error, 0x1p-22);
  if (IsFp8(problem.data_type())) error = std::max(error, 0x1p-13);
  return error;
}

// The error of partial sums that are added up in f16, or in bf16 where tensors are. Their signs are
// random, as those of the inputs are, so that no partial sum is much larger than the
// largest result, whatever the sum of absolute products is.
double ReductionError(const ConvProblem& problem, const Candidate& candidate, double products) {
  if (!candidate.has(NumericalNote::kReducedPrecisionReduction)) return 0;
  const bool bf16 =
      problem.data_type() == DataType::kBF16 || problem.output_type() == DataType::kBF16;
  return std::sqrt(std::min(products, kMostPartialSums)) *
         RoundingError(bf16 ? DataType::kBF16 : DataType::kF16);
}

bool Transforms(const Candidate& candidate) {
  return candidate.has(NumericalNote::kWinograd) ||
         candidate.has(NumericalNote::kWinogradTile4x4) ||
         candidate.has(NumericalNote::kWinogradTile6x6) ||
         candidate.has(NumericalNote::kWinogradTile13x13) || candidate.has(NumericalNote::kFft);
}

double InputError(const ConvProblem& problem, const Candidate& candidate) {
  double error = 0;
  if (problem.data_type() == DataType::kF32 && candidate.has(NumericalNote::kTensorCore)) {
    error = 0x1p-10;  // TF32, cut
  }
  if (candidate.has(NumericalNote::kDownConvertInputs)) error = 0x1p-8;  // bf16 at worst
  // Transformed inputs are rounded to the type of the inputs again.
  if (Transforms(candidate)) error = std::max(error, RoundingError(problem.data_type()));
  return error;
}

double Growth(const Candidate& candidate) {
  if (candidate.has(NumericalNote::kWinogradTile13x13)) return 4096;
  if (candidate.has(NumericalNote::kWinogradTile6x6)) return 256;
  if (candidate.has(NumericalNote::kWinogradTile4x4)) return 32;
  if (candidate.has(NumericalNote::kFft)) return 16;
  return candidate.has(NumericalNote::kWinograd) ? 4 : 1;
}

// A graph engine, or a legacy algorithm.
using Engine = std::pair<Api, int64_t>;

Engine EngineOf(const CandidateId& id) {
  if (const auto* legacy = std::get_if<LegacyAlgorithm>(&id)) {
    return {Api::kLegacy, legacy->algorithm};
  }
  return {Api::kGraph, std::get<EngineConfig>(id).engine_index};
}

}  // namespace

double ErrorBound(const ConvProblem& problem, const Candidate& candidate, double magnitude) {
  const double products = static_cast<double>(std::max<int64_t>(1, ProductsPerElement(problem)));
  const double arriving = 2 * InputError(problem, candidate) +
                          kDeviations * std::sqrt(products) * AccumulationError(problem, candidate);
  const double between =
      static_cast<double>(problem.epilogue().size()) * RoundingError(problem.intermediate_type());
  const double largest = std::isfinite(magnitude) ? std::max(1.0, magnitude) : 1.0;
  const double growth = Growth(candidate);
  const double bound =
      kSafety * (RoundingError(problem.output_type()) + largest * (between + growth * arriving) +
                 growth * ReductionError(problem, candidate, products));
  return std::min(kLargestBound, bound);
}

OutputVerdict JudgeOutput(const ConvProblem& problem, const Candidate& candidate,
                          const worker::v1::Checked& report) {
  if (!report.out_of_bounds().empty()) {
    return {QuarantineReason::kOutOfBounds,
            absl::StrCat("wrote outside of its memory: ", report.out_of_bounds())};
  }
  if (report.nonfinite() > 0) {
    return {QuarantineReason::kNotFinite,
            absl::StrCat("left ", report.nonfinite(),
                         " elements of its output NaN, infinite or not written")};
  }
  if (!report.has_error()) return {};
  const double bound = ErrorBound(problem, candidate, report.magnitude());
  // A NaN is not below any bound.
  if (report.error() <= bound) return {};
  if (problem.data_type() == DataType::kF32 && !candidate.has(NumericalNote::kTensorCore)) {
    Candidate with_tf32 = candidate;
    with_tf32.numerical_notes |= NoteBit(NumericalNote::kTensorCore);
    if (report.error() <= ErrorBound(problem, with_tf32, report.magnitude())) {
      return {std::nullopt, "", /*uses_tf32=*/true};
    }
  }
  return {QuarantineReason::kWrongResult,
          absl::StrFormat("its result is wrong: it differs from the reference by %.3g of the "
                          "largest value, where rounding explains %.3g",
                          report.error(), bound)};
}

std::vector<bool> DoubtedFaults(const std::vector<Vote>& votes) {
  std::set<Engine> engines;
  std::map<QuarantineReason, std::set<Engine>> with_fault;
  std::map<QuarantineReason, std::set<Engine>> of_stock;
  for (const Vote& vote : votes) {
    const Engine engine = EngineOf(vote.candidate);
    engines.insert(engine);
    if (!vote.fault) continue;
    with_fault[*vote.fault].insert(engine);
    if (vote.is_stock) of_stock[*vote.fault].insert(engine);
  }
  const auto of_api = [](const std::set<Engine>& all, Api api) {
    return std::count_if(all.begin(), all.end(),
                         [api](const Engine& engine) { return engine.first == api; });
  };
  std::vector<bool> doubted;
  for (const Vote& vote : votes) {
    if (!vote.fault) {
      doubted.push_back(false);
      continue;
    }
    const std::set<Engine>& same = with_fault[*vote.fault];
    const Engine engine = EngineOf(vote.candidate);
    doubted.push_back(kEnginesPerFaulty * same.size() > engines.size() ||
                      of_api(same, engine.first) == of_api(engines, engine.first) ||
                      of_stock[*vote.fault].contains(engine));
  }
  return doubted;
}

}  // namespace convtune::decision
