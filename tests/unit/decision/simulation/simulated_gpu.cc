#include "tests/unit/decision/simulation/simulated_gpu.h"

#include <algorithm>
#include <cmath>

#include "server/worker/timing/sample_plan.h"

namespace convtune::decision {
namespace {

constexpr double kClockMhz = 1755;
constexpr double kClockReading = 0.004;  // standard deviation of what is read
constexpr double kWavePeriod = 700;      // samples

// Of the GPU whose time is counted; see README.md.
constexpr double kReadGbytes = 3500;             // GB/s
constexpr int64_t kL2Bytes = int64_t{60} << 20;  // nvidia-h200.json
constexpr double kLaunchHostUs = 8;              // of a launch
constexpr double kQueueingHostUs = 20;           // of reading x and two events
constexpr double kAroundSampleUs = 40;           // waits, two stamps, two messages

}  // namespace

double DeviceTimeOfSampleUs(double gpu_us) {
  const worker::timing::SamplePlan plan = worker::timing::PlanSample({gpu_us, kLaunchHostUs});
  const double flush_us =
      static_cast<double>(worker::timing::FlushBytes(kL2Bytes)) / (kReadGbytes * 1e3);
  // The GPU flushes while runs are queued, and the blocking kernel keeps it until all are.
  return kAroundSampleUs + std::max(flush_us, plan.runs * (kLaunchHostUs + kQueueingHostUs)) +
         plan.runs * gpu_us;
}

std::vector<NoiseModel> NoiseModels() {
  return {
      {.name = "quiet", .jitter = 0.002},
      {.name = "ordinary", .jitter = 0.004, .drift = 0.01, .spike_chance = 0.01},
      {.name = "jittery", .jitter = 0.01},
      {.name = "drifting", .jitter = 0.004, .drift = 0.06},
      {.name = "spiky", .jitter = 0.004, .spike_chance = 0.05, .spike_size = 1.0},
      {.name = "throttling", .jitter = 0.004, .throttle_chance = 0.004, .throttle_depth = 0.25},
      {.name = "two clocks, rare",
       .jitter = 0.004,
       .low_clock_chance = 0.1,
       .low_clock_share = 0.88},
      {.name = "two clocks, often",
       .jitter = 0.004,
       .low_clock_chance = 0.5,
       .low_clock_share = 0.88},
      {.name = "power-capped", .jitter = 0.004, .drift = 0.02, .own_power = 0.15},
      {.name = "two modes", .jitter = 0.003, .slow_mode_chance = 0.2},
      {.name = "everything",
       .jitter = 0.005,
       .drift = 0.03,
       .spike_chance = 0.02,
       .throttle_chance = 0.002,
       .throttle_depth = 0.25,
       .low_clock_chance = 0.1,
       .low_clock_share = 0.9,
       .own_power = 0.1,
       .slow_mode_chance = 0.05},
  };
}

SimulatedProblem MakeProblem(const NoiseModel& noise, std::mt19937_64* random) {
  const auto uniform = [random](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(*random);
  };
  SimulatedProblem problem;
  const int count = 2 + static_cast<int>((*random)() % 23);
  const double fastest = std::exp(uniform(std::log(5.0), std::log(2000.0)));
  for (int i = 0; i < count; ++i) {
    Candidate candidate;
    candidate.id = EngineConfig{static_cast<int64_t>(i), {}};
    candidate.heuristic_rank = i;
    candidate.workspace_bytes =
        (*random)() % 2 == 0 ? 0 : static_cast<int64_t>((*random)() % 64) << 20;
    if ((*random)() % 4 == 0) {
      candidate.numerical_notes |= NoteBit(NumericalNote::kNondeterministic);
    }
    if ((*random)() % 2 == 0) candidate.numerical_notes |= NoteBit(NumericalNote::kTensorCore);
    if ((*random)() % 3 != 0) {
      candidate.behavior_notes = NoteBit(BehaviorNote::kSupportsCudaGraphNativeApi);
    }
    problem.candidates.push_back(candidate);
    const double gap = (*random)() % 8 == 0 ? 0 : std::exp(uniform(std::log(0.001), std::log(0.2)));
    problem.true_us.push_back(fastest * (1 + gap));
    problem.clock_share.push_back(1 - uniform(0, 1) * noise.own_power);
  }
  return problem;
}

SimulatedGpu::SimulatedGpu(const NoiseModel& noise, const SimulatedProblem& problem, uint64_t seed)
    : noise_(noise), problem_(problem), random_(seed) {
  phase_ = std::uniform_real_distribution<double>(0, 2 * M_PI)(random_);
}

double SimulatedGpu::Normal() { return normal_(random_); }

bool SimulatedGpu::Chance(double chance) {
  return chance > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < chance;
}

RunSample SimulatedGpu::Run(size_t place) {
  ++samples_;
  double factor = std::exp(noise_.jitter * Normal());
  if (noise_.drift > 0) {
    walk_ += noise_.drift * 0.02 * Normal();
    factor *= 1 + noise_.drift * std::sin(phase_ + 2 * M_PI * samples_ / kWavePeriod) +
              std::clamp(walk_, -noise_.drift, noise_.drift);
  }
  if (Chance(noise_.spike_chance)) {
    factor *= 1 + std::exponential_distribution<double>(1 / noise_.spike_size)(random_);
  }
  if (Chance(noise_.slow_mode_chance)) factor *= 1 + noise_.slow_mode_size;
  double clock = 1;
  if (Chance(noise_.throttle_chance)) {
    throttled_for_ = std::geometric_distribution<int>(0.02)(random_);
  }
  if (throttled_for_ > 0) {
    --throttled_for_;
    clock *= 1 - noise_.throttle_depth;
  }
  if (Chance(noise_.low_clock_chance)) clock *= noise_.low_clock_share;
  // Its own clock is part of a candidate's true time.
  const double read = kClockMhz * clock * problem_.clock_share[place];
  return {problem_.true_us[place] * factor / clock, read * (1 + kClockReading * Normal())};
}

}  // namespace convtune::decision
