#include "tests/unit/report/simulated_fleet.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/convert/problem_list.h"

namespace convtune::report {
namespace {

constexpr int kModels = 3;
constexpr int kCandidates = 4;
constexpr int64_t kDaySeconds = 86'400;

// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

ConvProblem NumberedProblem(int number) {
  constexpr int kChannels[] = {16, 32, 64, 96, 128, 256, 512};
  constexpr int kSizes[] = {7, 14, 28, 56, 112};
  constexpr const char* kOperations[] = {"fwd", "fwd", "bwd_data", "bwd_filter"};
  constexpr const char* kTypes[] = {"nhwc,f16", "nhwc,f16", "nchw,f32", "nhwc,bf16"};
  const int filter = number % 3 == 0 ? 1 : 3;
  const int channels = kChannels[number / 3 % 7];
  // The batch size keeps numbers apart.
  return ConvProblem::Parse(absl::StrFormat("%s,x=%dx%dx%dx%d,w=%dx%dx%dx%d,pad=%d,%s",
                                            kOperations[number % 4], 1 + number / 420, channels,
                                            kSizes[number / 21 % 5], kSizes[number / 21 % 5],
                                            kChannels[number / 7 % 7] + number % 420 / 105 * 8,
                                            channels, filter, filter, filter / 2,
                                            kTypes[number / 5 % 4]))
      .value();
}

}  // namespace

SimulatedFleet::SimulatedFleet(FleetOptions options) : options_(options) {
  for (const char* key : {"nvidia-h200,cc=9.0,sms=132", "nvidia-a100-sxm4-80gb,cc=8.0,sms=108",
                          "nvidia-l4,cc=8.9,sms=58"}) {
    for (const char* cudnn : {"9.18.1", "9.19.0"}) {
      Environment environment =
          Environment::Parse(absl::StrCat(key, ",cudnn=", cudnn, ",lib=full")).value();
      const size_t model = environments_.size() / 2;
      environment.gpu_model = model == 0   ? "NVIDIA H200"
                              : model == 1 ? "NVIDIA A100-SXM4-80GB"
                                           : "NVIDIA L4";
      environments_.push_back(environment);
    }
  }
  std::set<std::string> seen;
  for (int number = 0; static_cast<int>(problems_.size()) < options_.problems; ++number) {
    ConvProblem problem = NumberedProblem(number);
    std::string text = problem.ToText();
    if (!seen.insert(text).second) continue;
    problems_.push_back(std::move(problem));
    texts_.push_back(std::move(text));
  }
}

double SimulatedFleet::Draw(uint64_t a, uint64_t b, uint64_t c, uint64_t d) const {
  const uint64_t mixed = Mix(Mix(Mix(Mix(Mix(options_.seed) ^ a) ^ b) ^ c) ^ d);
  return static_cast<double>(mixed >> 11) * 0x1p-53;
}

std::string SimulatedFleet::NodeName(int node) { return absl::StrFormat("node-%04d", node); }

std::vector<int> SimulatedFleet::EnvironmentsOf(int node) const {
  const int older = node % kModels * 2;
  if (HasBoth(node)) return {older, older + 1};
  return {node / 3 % 10 <= 4 ? older : older + 1};
}

std::vector<int> SimulatedFleet::ProblemsOf(int node) const {
  const auto count = static_cast<int>(texts_.size());
  const auto wanted = static_cast<size_t>(std::min(options_.problems_per_node, count));
  std::set<int> chosen;
  for (int i = 0; wanted == texts_.size() && i < count; ++i) chosen.insert(i);
  for (uint64_t i = 0; chosen.size() < wanted; ++i) {
    chosen.insert(static_cast<int>(Draw(1, static_cast<uint64_t>(node), i, 0) * count));
  }
  std::vector<int> problems(chosen.begin(), chosen.end());
  std::sort(problems.begin(), problems.end(), [this](int a, int b) {
    return texts_[static_cast<size_t>(a)] < texts_[static_cast<size_t>(b)];
  });
  return problems;
}

Tuning SimulatedFleet::Make(int node, int environment, int problem) const {
  const auto n = static_cast<uint64_t>(node);
  const auto e = static_cast<uint64_t>(environment);
  const auto p = static_cast<uint64_t>(problem);
  const uint64_t model = e / 2;
  Tuning tuning;
  tuning.key = {texts_[p], environments_[e].ToText()};
  tuning.provenance = {NewDriver(node) ? "590.12.01" : "580.65.06", "13.0",
                       absl::StrFormat("GPU-%08x", Mix(n) & 0xFFFFFFFF), NodeName(node),
                       int64_t{80} << 30};
  tuning.tune_time =
      Now() - absl::Seconds(kDaySeconds * (IsOld(node) ? 300 : 1) +
                            static_cast<int64_t>(Draw(2, n, e, p) * 40 * kDaySeconds));
  tuning.elapsed = absl::Milliseconds(200 + static_cast<int64_t>(Draw(3, n, e, p) * 3000));
  const double peak = model == 0 ? 400e6 : model == 1 ? 180e6 : 60e6;  // FLOP per microsecond
  double base = 3 + EstimatedFlops(problems_[p]) / (peak * (0.2 + 0.6 * Draw(4, model, p, 0)));
  if (SlowerCudnn(problem) && environment % 2 == 1) base *= 1.15 + 0.45 * Draw(5, model, p, 0);
  if (SlowerDriver(problem) && NewDriver(node)) base *= 1.12 + 0.28 * Draw(6, model, p, 0);
  if (IsSlow(node)) base *= 1.12;
  base *= 1 + 0.02 * (Draw(8, n, model, 0) - 0.5);
  const bool swapped = Disagrees(problem) && IsVariant(node);
  const double factors[kCandidates] = {swapped ? 1.2 : 1.0, swapped ? 1.0 : 1.2, 1.3, 1.7};
  const int stock = IsStockBest(problem) ? 0 : 2;
  for (int i = 0; i < kCandidates; ++i) {
    Candidate candidate;
    candidate.id =
        EngineConfig{20 + static_cast<int>(Draw(9, model, p / 40, 0) * 6) * 4 + i, {{2, i}}};
    candidate.status = options_.timed ? CandidateStatus::kTimed : CandidateStatus::kFinalized;
    candidate.heuristic_rank = i == stock ? 0 : i + 1;
    candidate.workspace_bytes = i * 65'536;
    if (options_.timed) {
      const double us =
          base * factors[i] *
          (1 + 0.01 * (Draw(10, n, e, p * kCandidates + static_cast<uint64_t>(i)) - 0.5));
      candidate.median_us = us;
      candidate.q1_us = candidate.low_us = us * 0.997;
      candidate.q3_us = candidate.high_us = us * 1.003;
      candidate.sample_count = 12;
      candidate.sm_clock_mhz = (IsSlow(node) ? 1500 : 1710) + 20 * Draw(11, n, e, p);
    }
    tuning.candidates.push_back(candidate);
  }
  if (swapped) std::swap(tuning.candidates[0], tuning.candidates[1]);
  if (!options_.timed) {
    // The heuristic's own order is all that there is.
    std::sort(
        tuning.candidates.begin(), tuning.candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.heuristic_rank < b.heuristic_rank; });
  }
  tuning.evidence = options_.timed ? Evidence::kMeasured : Evidence::kHeuristic;
  tuning.conditions.known = options_.timed;
  if (IsSlow(node)) {
    tuning.conditions.clock_reasons = static_cast<uint32_t>(ClockReason::kThermalSlowdown);
  }
  if (!tuning.conditions.clean()) {
    tuning.evidence = Evidence::kIncomplete;  // as a daemon says it
    tuning.incomplete_message = Marks(tuning.conditions).front();
  }
  return tuning;
}

std::vector<std::pair<Tuning, Environment>> SimulatedFleet::TuningsOf(int node) const {
  std::vector<std::pair<Tuning, Environment>> tunings;
  const std::vector<int> problems = ProblemsOf(node);
  for (const int environment : EnvironmentsOf(node)) {
    for (const int problem : problems) {
      tunings.emplace_back(Make(node, environment, problem),
                           environments_[static_cast<size_t>(environment)]);
    }
  }
  return tunings;
}

std::set<SimulatedFleet::Finding> SimulatedFleet::MeasuredByBoth(
    bool (*planted)(int problem), const std::function<bool(int node)>& side) const {
  std::map<Finding, std::set<bool>> sides;
  for (int node = 0; node < nodes(); ++node) {
    for (const int problem : ProblemsOf(node)) {
      if (!planted(problem)) continue;
      for (const int e : EnvironmentsOf(node)) {
        sides[{environments_[static_cast<size_t>(e)].ToText(),
               texts_[static_cast<size_t>(problem)]}]
            .insert(side(node));
      }
    }
  }
  std::set<Finding> findings;
  for (const auto& [finding, measured] : sides) {
    if (measured.size() == 2) findings.insert(finding);
  }
  return findings;
}

std::set<SimulatedFleet::Finding> SimulatedFleet::Disagreements() const {
  return MeasuredByBoth(Disagrees, [this](int node) { return IsVariant(node); });
}

std::set<SimulatedFleet::Finding> SimulatedFleet::DriverRegressions() const {
  return MeasuredByBoth(SlowerDriver, NewDriver);
}

std::set<SimulatedFleet::Finding> SimulatedFleet::CudnnRegressions() const {
  // A driver that has measured it before and after.
  std::map<std::tuple<int, int, bool>, std::pair<bool, bool>> measured;
  for (int node = 0; node < nodes(); ++node) {
    for (const int problem : ProblemsOf(node)) {
      if (!SlowerCudnn(problem)) continue;
      for (const int e : EnvironmentsOf(node)) {
        auto& [before, after] = measured[{e / 2, problem, NewDriver(node)}];
        (e % 2 == 0 ? before : after) = true;
      }
    }
  }
  std::set<Finding> findings;
  for (const auto& [key, sides] : measured) {
    const auto& [model, problem, driver] = key;
    if (!sides.first || !sides.second) continue;
    findings.emplace(environments_[static_cast<size_t>(model * 2 + 1)].ToText(),
                     texts_[static_cast<size_t>(problem)]);
  }
  return findings;
}

}  // namespace convtune::report
