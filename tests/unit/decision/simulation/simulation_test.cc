// What is promised of the decisions, over thousands of tunings whose truth is
// known. CONVTUNE_TEST_SIMULATED_TUNINGS says how many for each GPU, and with
// CONVTUNE_TEST_SIMULATION_TABLE the table goes to that file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
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
