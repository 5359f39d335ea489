// Tunings of simulated problems, decided by the code that decides real ones.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/decision/race.h"
#include "tests/unit/decision/simulation/simulated_gpu.h"

namespace convtune::decision {

// How one tuning ended.
struct SimulatedTuning {
  size_t winner = 0;  // place in the problem
  size_t stock = 0;
  StopReason stop = StopReason::kNone;
  int64_t samples = 0;
  int rounds = 0;
  size_t finalists = 0;
  double card_us = 0;  // DeviceTimeOfSampleUs of the samples
};

// With `most_rounds` the budget ends the race after so many; 0: it does not.
// `input_bytes` are those of the problem's x.
SimulatedTuning TuneOnce(const NoiseModel& noise, const SimulatedProblem& problem, uint64_t seed,
                         int most_rounds = 0, double input_bytes = 0);

// What many tunings on one GPU came to. A flip: two tunings of one problem
// whose winners' true times differ by more than kEquivalence.
struct SimulationResult {
  int problems = 0;
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
                          uint64_t seed, int most_rounds = 0);

// One line of the table in results.md.
std::string ToRow(const std::string& name, const SimulationResult& result);
extern const char kTableHead[];

}  // namespace convtune::decision
