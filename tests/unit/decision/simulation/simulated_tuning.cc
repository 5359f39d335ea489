#include "tests/unit/decision/simulation/simulated_tuning.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/race.h"

namespace convtune::decision {

const char kTableHead[] =
    "| GPU | tunings | flips | slower than stock | not settled | mean "
    "regret | worst regret | samples | GPU time | share of 30 rounds of all | share of exhaustive "
    "|\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n";

namespace {

// The share by which no two tunings of a problem, and no tuning and its stock choice, may
// differ by.
const double kBeyond = 1 + kEquivalence;

}  // namespace

SimulatedTuning TuneOnce(const NoiseModel& noise, const SimulatedProblem& problem, uint64_t seed,
                         int most_rounds, double input_bytes) {
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
        tuning.card_us += DeviceTimeOfSampleUs(run.time_us, input_bytes);
      }
    }
  }
  tuning.rounds = race.rounds();
  tuning.finalists = race.runners().size();
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

SimulationResult Simulate(const NoiseModel& noise, int problems, int tunings_per_problem,
                          uint64_t seed, int most_rounds) {
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
    ++result.problems;
  }
  for (double* total : {&result.mean_regret, &result.samples, &result.card_ms, &result.exhaustive,
                        &result.thirty_rounds}) {
    *total /= result.tunings;
  }
  return result;
}

std::string ToRow(const std::string& name, const SimulationResult& result) {
  return absl::StrFormat(
      "| %s | %d | %d | %d | %d | %.3f%% | %.2f%% | %.0f | %.0f ms | %.0f%% | %.0f%% |\n", name,
      result.tunings, result.flips, result.below_stock, result.not_settled,
      100 * result.mean_regret, 100 * result.worst_regret, result.samples, result.card_ms,
      100 * result.samples / result.thirty_rounds, 100 * result.samples / result.exhaustive);
}

}  // namespace convtune::decision
