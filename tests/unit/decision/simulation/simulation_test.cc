// What is promised of the decisions, over thousands of tunings whose truth is
// known. CONVTUNE_TEST_SIMULATED_TUNINGS says how many for each GPU, and with
// CONVTUNE_TEST_SIMULATION_TABLE the table goes to that file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/race.h"
#include "tests/unit/decision/simulation/simulated_gpu.h"

namespace convtune::decision {
namespace {

const char kTableHead[] =
    "| GPU | tunings | flips | slower than stock | not settled | mean "
    "regret | worst regret | samples | GPU time | share of 30 rounds of all | share of exhaustive "
    "|\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n";

// The share by which no two tunings of a problem, and no tuning and its stock choice, may
// differ by.
const double kBeyond = 1 + kEquivalence;

// How one tuning ended.
struct SimulatedTuning {
  size_t winner = 0;  // place in the problem
  size_t stock = 0;
  StopReason stop = StopReason::kNone;
  int64_t samples = 0;
  int rounds = 0;
  double card_us = 0;  // DeviceTimeOfSampleUs of the samples
};

// With `most_rounds` the budget ends the race after so many; 0: it does not.
SimulatedTuning TuneOnce(const NoiseModel& noise, const SimulatedProblem& problem, uint64_t seed,
                         int most_rounds) {
  SimulatedGpu gpu(noise, problem, seed);
  std::vector<Candidate> candidates = problem.candidates;
  SimulatedTuning tuning;
  tuning.stock = StockIndex(candidates).value();
  std::vector<Contender> contenders;
  for (size_t i = 0; i < candidates.size(); ++i) {
    contenders.push_back({ContestsOf(candidates[i], &candidates[tuning.stock]), i == tuning.stock});
  }
  Race race(contenders);
  while (true) {
    const RaceStep step = race.Next();
    if (step.stop != StopReason::kNone) {
      tuning.stop = step.stop;
      break;
    }
    if (most_rounds > 0 && race.rounds() >= most_rounds) break;
    const int rounds =
        most_rounds > 0 ? std::min(step.rounds, most_rounds - race.rounds()) : step.rounds;
    for (int i = 0; i < rounds; ++i) {
      const int round = race.rounds() + i;
      for (size_t k = 0; k < step.runners.size(); ++k) {
        const size_t place = step.runners[(k + static_cast<size_t>(round)) % step.runners.size()];
        const RunSample run = gpu.Run(place);
        race.Add(place, round, run);
        ++tuning.samples;
        tuning.card_us += DeviceTimeOfSampleUs(run.time_us);
      }
    }
  }
  tuning.rounds = race.rounds();
  std::vector<Candidate*> to;
  for (Candidate& candidate : candidates) to.push_back(&candidate);
  race.WriteTimes(to);
  std::vector<const Candidate*> timed;
  for (Candidate& candidate : candidates) {
    if (candidate.sample_count == 0) continue;
    candidate.status = CandidateStatus::kTimed;
    timed.push_back(&candidate);
  }
  tuning.winner =
      static_cast<size_t>(PickWinner(timed, &candidates[tuning.stock]) - candidates.data());
  return tuning;
}

// What many tunings on one GPU came to. A flip: two tunings of one problem
// whose winners' true times differ by more than kEquivalence.
struct SimulationResult {
  int tunings = 0;
  int flips = 0;           // tunings that differ so from their problem's fastest winner
  int below_stock = 0;     // tunings whose winner is slower than stock by more than that
  int not_settled = 0;     // tunings that ended with NOISE_SETTLED or ROUNDS
  double mean_regret = 0;  // true time of the winner over the fastest's, less 1
  double worst_regret = 0;
  double samples = 0;        // per tuning
  double card_ms = 0;        // per tuning: time that the samples keep the GPU
  double exhaustive = 0;     // per tuning: every candidate in as many rounds
  double thirty_rounds = 0;  // per tuning: every candidate in 30 rounds
};

SimulationResult Simulate(const NoiseModel& noise, int problems, int tunings_per_problem,
                          uint64_t seed, int most_rounds = 0) {
  std::mt19937_64 random(seed);
  SimulationResult result;
  for (int p = 0; p < problems; ++p) {
    const SimulatedProblem problem = MakeProblem(noise, &random);
    const double fastest = *std::min_element(problem.true_us.begin(), problem.true_us.end());
    std::vector<double> winners;
    for (int t = 0; t < tunings_per_problem; ++t) {
      const SimulatedTuning tuning = TuneOnce(noise, problem, random(), most_rounds);
      const double winner = problem.true_us[tuning.winner];
      winners.push_back(winner);
      const double regret = winner / fastest - 1;
      result.mean_regret += regret;
      result.worst_regret = std::max(result.worst_regret, regret);
      result.below_stock += winner > kBeyond * problem.true_us[tuning.stock] ? 1 : 0;
      result.not_settled +=
          tuning.stop == StopReason::kNoiseSettled || tuning.stop == StopReason::kRounds ? 1 : 0;
      const auto count = static_cast<double>(problem.candidates.size());
      result.samples += static_cast<double>(tuning.samples);
      result.card_ms += tuning.card_us / 1e3;
      result.exhaustive += count * tuning.rounds;
      result.thirty_rounds += count * 30;
      ++result.tunings;
    }
    const double best = *std::min_element(winners.begin(), winners.end());
    result.flips += static_cast<int>(std::count_if(
        winners.begin(), winners.end(), [best](double winner) { return winner > kBeyond * best; }));
  }
  for (double* total : {&result.mean_regret, &result.samples, &result.card_ms, &result.exhaustive,
                        &result.thirty_rounds}) {
    *total /= result.tunings;
  }
  return result;
}

// One line of the table in results.md.
std::string ToRow(const std::string& name, const SimulationResult& result) {
  return absl::StrFormat(
      "| %s | %d | %d | %d | %d | %.3f%% | %.2f%% | %.0f | %.0f ms | %.0f%% | %.0f%% |\n", name,
      result.tunings, result.flips, result.below_stock, result.not_settled,
      100 * result.mean_regret, 100 * result.worst_regret, result.samples, result.card_ms,
      100 * result.samples / result.thirty_rounds, 100 * result.samples / result.exhaustive);
}

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
