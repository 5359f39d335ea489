// Conditions describe the state of a GPU while it was measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/enums.h"

namespace convtune {

// Reasons for which a GPU's clocks are lower than asked for, as bits of NVML's
// clocksEventReasons. Persisted: never renumber.
enum class ClockReason : uint32_t {
  kIdle = 0x1,
  kApplicationClocks = 0x2,
  kPowerCap = 0x4,
  kHardwareSlowdown = 0x8,
  kSyncBoost = 0x10,
  kThermalSlowdown = 0x20,
  kHardwareThermalSlowdown = 0x40,
  kPowerBrake = 0x80,
  kDisplayClocks = 0x100
};

// Clock reasons that mark a measurement as throttled. A power cap does not: a GPU
// that is busy with tensor cores is always at its cap.
inline constexpr uint32_t kThrottleReasons =
    static_cast<uint32_t>(ClockReason::kHardwareSlowdown) |
    static_cast<uint32_t>(ClockReason::kThermalSlowdown) |
    static_cast<uint32_t>(ClockReason::kHardwareThermalSlowdown) |
    static_cast<uint32_t>(ClockReason::kPowerBrake);

// Conditions are the state of the GPU during one tuning, as NVML reported it: the most
// processes, all clock reasons and the highest temperature of all looks at the GPU.
// They also say which instruments of the worker passed the self-check, and how its runs went.
// Value type.
struct Conditions {
  // False: NVML could not be asked, and nothing says anything but the fields behind compute_mode.
  bool known = false;
  // Most processes other than the worker that had a context on the GPU.
  int other_processes = 0;
  uint32_t clock_reasons = 0;  // mask of ClockReason
  double power_limit_watts = 0;
  int temperature_celsius = 0;
  int64_t ecc_errors = 0;  // uncorrected, since the driver was loaded
  bool mig = false;
  bool mps = false;  // an MPS server has the GPU
  ComputeMode compute_mode = ComputeMode::kUnknown;
  // Mask of SelfCheckBit (proto/model/tuning/self_check.h); 0: not run.
  uint32_t self_check = 0;
  // Runs that failed and were tried once more: see TryTwice in server/worker. 0 where
  // the tuning ended in its checks, or a worker that was lost has not said it.
  int retried_runs = 0;
  // For people: what was no longer put behind blocking kernels, and since which engines gave
  // up, as "launches, after eng1, eng2, eng3 gave up"; empty: they were used, or the
  // self-check had found that they do not work. See BlockingPolicy in server/worker.
  std::string unblocked = {};

  bool contended() const { return known && (other_processes > 0 || mps); }
  bool throttled() const { return known && (clock_reasons & kThrottleReasons) != 0; }
  bool clean() const { return !contended() && !throttled() && ecc_errors == 0; }

  friend bool operator==(const Conditions&, const Conditions&) = default;
};

// Takes another look into `conditions`.
void Merge(const Conditions& look, Conditions* conditions);

// Says in words why a measurement under these conditions is not clean; empty if it is
// clean.
std::vector<std::string> Marks(const Conditions& conditions);

// "power cap", "thermal slowdown", ... of each bit that is set.
std::vector<std::string> ClockReasonNames(uint32_t reasons);

}  // namespace convtune
