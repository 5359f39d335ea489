// What is promised of the decisions, over thousands of tunings whose truth is
// known. CONVTUNE_TEST_SIMULATED_TUNINGS says how many for each GPU, and with
// CONVTUNE_TEST_SIMULATION_TABLE the table goes to that file, with
// CONVTUNE_TEST_GPU_TIME_TABLE the estimate for ResNet-50.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_format.h"
#include "tests/unit/decision/simulation/simulated_tuning.h"

namespace convtune::decision {
namespace {

constexpr int kTuningsPerProblem = 20;

int Tunings() {
  const char* text = std::getenv("CONVTUNE_TEST_SIMULATED_TUNINGS");
  return text == nullptr ? 100 : std::atoi(text);
}

class Simulation : public ::testing::TestWithParam<NoiseModel> {};

TEST_P(Simulation, NoFlipBeyondTheEquivalenceAndNothingSlowerThanTheStockChoiceByMore) {
  const SimulationResult result =
      Simulate(GetParam(), Tunings() / kTuningsPerProblem, kTuningsPerProblem, 20261121);
  ASSERT_GE(result.tunings, 100);
  EXPECT_EQ(result.flips, 0);
  EXPECT_EQ(result.below_stock, 0);
  EXPECT_LT(result.mean_regret, 0.005);
  EXPECT_LT(result.samples, result.exhaustive);
  if (const char* path = std::getenv("CONVTUNE_TEST_SIMULATION_TABLE"); path != nullptr) {
    std::ofstream table(path, std::ios::app);
    if (table.tellp() == 0) table << kTableHead;
    table << ToRow(GetParam().name, result);
  }
}

// A budget that ends early leaves the stock choice in place, unless what is
// faster is so beyond what few samples can deceive about.
TEST_P(Simulation, ARaceThatTheBudgetCutsShortChoosesNothingBelowTheStockChoice) {
  for (int rounds = 1; rounds <= 11; ++rounds) {
    const SimulationResult result =
        Simulate(GetParam(), Tunings() / kTuningsPerProblem, kTuningsPerProblem, 20261121, rounds);
    // The intervals are of 99%: one in 200 on either side.
    EXPECT_LE(result.below_stock, result.tunings / 200) << rounds << " rounds";
  }
}

// One line of deploy/examples/resnet50.csv, at a batch size of 32 in f16.
struct Layer {
  std::string text;
  double x_bytes = 0;
  double y_bytes = 0;
  double fastest_us = 0;  // by a roofline, see README.md
};

std::vector<Layer> ResNet50() {
  constexpr double kBatch = 32;
  constexpr double kTflops = 400;
  constexpr double kStartUs = 2;
  std::vector<Layer> layers;
  std::ifstream file(CONVTUNE_RESNET50);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    double n, c, h, w, k, r, s, pad_h, pad_w, stride_h, stride_w;
    if (!(fields >> n >> c >> h >> w >> k >> r >> s >> pad_h >> pad_w >> stride_h >> stride_w)) {
      ADD_FAILURE() << line;
      continue;
    }
    const double p = std::floor((h + 2 * pad_h - r) / stride_h) + 1;
    const double q = std::floor((w + 2 * pad_w - s) / stride_w) + 1;
    Layer layer;
    layer.text = absl::StrFormat("%gx%gx%g, %gx%gx%g, stride %g", c, h, w, k, r, s, stride_h);
    layer.x_bytes = 2 * kBatch * c * h * w;
    layer.y_bytes = 2 * kBatch * k * p * q;
    const double flops = 2 * kBatch * k * p * q * c * r * s;
    const double bytes = layer.x_bytes + layer.y_bytes + 2 * k * c * r * s;
    layer.fastest_us = kStartUs + std::max(flops / (kTflops * 1e6), DeviceTimeOfReadingUs(bytes));
    layers.push_back(layer);
  }
  return layers;
}

// Of MakeProblem, as fast as the layer, and with so many more candidates, slower
// by 20% to four times, that there are 48.
SimulatedProblem ProblemOf(const Layer& layer, const NoiseModel& noise, std::mt19937_64* random) {
  SimulatedProblem problem = MakeProblem(noise, random);
  const double fastest = *std::min_element(problem.true_us.begin(), problem.true_us.end());
  for (double& us : problem.true_us) us *= layer.fastest_us / fastest;
  std::uniform_real_distribution<double> log_gap(std::log(0.2), std::log(4.0));
  while (problem.candidates.size() < 48) {
    const auto place = static_cast<int64_t>(problem.candidates.size());
    Candidate candidate;
    candidate.id = EngineConfig{place, {}};
    candidate.heuristic_rank = static_cast<int>(place);
    problem.candidates.push_back(candidate);
    problem.true_us.push_back(layer.fastest_us * (1 + std::exp(log_gap(*random))));
    problem.clock_share.push_back(1);
  }
  return problem;
}

// An estimate by formulas, not a measurement; README.md says what is in it.
TEST(DeviceTimeEstimate, ResNet50ForwardAtBatch32TakesLessThan90Seconds) {
  constexpr int kTunings = 20;
  constexpr int kOtherWays = 2;
  constexpr int kRoundsOfAWay = 15;
  constexpr double kWaitsOfACheckUs = 500;
  const NoiseModel noise = NoiseModels().back();
  std::mt19937_64 random(20261122);
  std::string table =
      "| problem | fastest | samples | check | race | other ways | together |\n"
      "|---|---|---|---|---|---|---|\n";
  double all_ms = 0;
  const std::vector<Layer> layers = ResNet50();
  ASSERT_EQ(layers.size(), 23U);
  for (const Layer& layer : layers) {
    double samples = 0;
    std::array<double, 3> ms = {};
    for (int i = 0; i < kTunings; ++i) {
      const SimulatedProblem problem = ProblemOf(layer, noise, &random);
      for (const double us : problem.true_us) {
        // Two runs and a replay; the output is filled and scanned twice.
        ms[0] += (3 * us + 4 * DeviceTimeOfReadingUs(layer.y_bytes) + kWaitsOfACheckUs) / 1e3;
      }
      const SimulatedTuning tuning = TuneOnce(noise, problem, random(), 0, layer.x_bytes);
      samples += static_cast<double>(tuning.samples);
      ms[1] += tuning.card_us / 1e3;
      ms[2] += kOtherWays * kRoundsOfAWay * static_cast<double>(tuning.finalists) *
               DeviceTimeOfSampleUs(1.1 * layer.fastest_us, layer.x_bytes) / 1e3;
    }
    for (double& part : ms) part /= kTunings;
    const double together = ms[0] + ms[1] + ms[2];
    all_ms += together;
    table += absl::StrFormat("| %s | %.0f us | %.0f | %.0f ms | %.0f ms | %.0f ms | %.0f ms |\n",
                             layer.text, layer.fastest_us, samples / kTunings, ms[0], ms[1], ms[2],
                             together);
  }
  table += absl::StrFormat("| all %d | | | | | | %.1f s |\n", layers.size(), all_ms / 1e3);
  EXPECT_LT(all_ms, 90e3);
  if (const char* path = std::getenv("CONVTUNE_TEST_GPU_TIME_TABLE"); path != nullptr) {
    std::ofstream(path, std::ios::app) << table;
  }
}

std::string TestName(const ::testing::TestParamInfo<NoiseModel>& info) {
  std::string name;
  for (const char c : info.param.name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(GPUs, Simulation, ::testing::ValuesIn(NoiseModels()), TestName);

}  // namespace
}  // namespace convtune::decision
