// A GPU made of formulas: candidates with known true times, and the noise of
// real GPUs on top. README.md beside this file gives the formulas.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "proto/model/tuning/candidate.h"
#include "server/decision/samples.h"

namespace convtune::decision {

// What the samples of one GPU are like.
struct NoiseModel {
  std::string name;
  double jitter = 0.003;         // standard deviation of the logarithm of a time
  double drift = 0;              // amplitude of a slow wave, and of a walk beside it
  double spike_chance = 0;       // of a sample
  double spike_size = 0.5;       // mean of what a spike adds, in units of the time
  double throttle_chance = 0;    // of a throttled spell beginning at a sample
  double throttle_depth = 0;     // share of the clock that it takes
  double low_clock_chance = 0;   // of a sample in the lower of two clock states
  double low_clock_share = 1;    // of that state
  double own_power = 0;          // most that a candidate lowers its own clock by
  double slow_mode_chance = 0;   // of a sample that is slower though its clock is not
  double slow_mode_size = 0.08;  // by this share
};

// The GPUs that simulations are run on.
std::vector<NoiseModel> NoiseModels();

// One problem: candidates in the order of a heuristic, with traits at random,
// the true gaps between them log-uniform from 0.1% to 20% (some are none).
struct SimulatedProblem {
  std::vector<Candidate> candidates;  // finalised
  std::vector<double> true_us;
  std::vector<double> clock_share;  // of its own, at most 1
};
SimulatedProblem MakeProblem(const NoiseModel& noise, std::mt19937_64* random);

// How long the GPU is kept by one sample in the cache state of the race, of a
// launch that takes it `gpu_us`, in microseconds: the method is that of
// server/worker/README.md, README.md says what is assumed.
double DeviceTimeOfSampleUs(double gpu_us);

// Gives samples, one after the other. Not thread-safe.
class SimulatedGpu {
 public:
  // Both outlive it.
  SimulatedGpu(const NoiseModel& noise, const SimulatedProblem& problem, uint64_t seed);
  RunSample Run(size_t place);

 private:
  double Normal();
  bool Chance(double chance);

  const NoiseModel& noise_;
  const SimulatedProblem& problem_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  double phase_ = 0;
  double walk_ = 0;
  int samples_ = 0;
  int throttled_for_ = 0;
};

}  // namespace convtune::decision
