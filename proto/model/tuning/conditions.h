// Conditions describe the state of a GPU while it was measured. A SelfCheck says which of a
// worker's instruments work on its GPU, as the worker found when it started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/model/enums.h"

namespace convtune {

// Raised when a self-check looks at something else, or judges it otherwise, so
// that every worker checks itself anew. Persisted.
inline constexpr int kSelfCheckVersion = 2;

// Bits of a self-check's result: that it was run, and each instrument that
// does not work. Also the steps of a self-check. Persisted: never renumber. Bits 18 to 31
// were known convolutions, which are not tried any more: old tunings name them.
enum class SelfCheckBit : uint32_t {
  kRun = 1 << 0,
  // A blocking kernel holds the work that is queued behind it. Else samples are
  // taken without one.
  kBlockingKernel = 1 << 1,
  // Events, globaltimer and the SM clock agree with the host's clock. Else
  // nothing is measured, and answers are HEURISTIC.
  kClock = 1 << 2,
  // A flush evicts what was in L2. Else nothing is claimed of cold caches.
  kCaches = 1 << 3,
  // Planted faults are found by the check of results. Else results are not
  // judged: nobody is quarantined for them, and evidence is capped.
  kChecker = 1 << 4,
  // A capture that fails leaves the stream and cuDNN usable. Else nothing is
  // captured, and no replays are timed.
  kCaptures = 1 << 5
};

constexpr uint32_t MaskOf(SelfCheckBit bit) { return static_cast<uint32_t>(bit); }

// A broken instrument limits the conclusions: see each bit. Value type.
struct SelfCheck {
  uint32_t mask = 0;    // of SelfCheckBit; 0: it was not run (a profile's worker)
  std::string details;  // findings for people: one line for each instrument

  bool known() const { return (mask & MaskOf(SelfCheckBit::kRun)) != 0; }
  // True unless the instrument was found not to work.
  bool works(SelfCheckBit instrument) const { return (mask & MaskOf(instrument)) == 0; }

  friend bool operator==(const SelfCheck&, const SelfCheck&) = default;
};

// The bits of the steps of a self-check.
uint32_t SelfCheckSteps();
// The name of each instrument that the mask says does not work, in the order of
// the bits: "blocking_kernel", "clock", "caches", "checker", "captures", "graph:fwd:f32", ...
std::vector<std::string> FailedInstruments(uint32_t mask);
// The mask of a self-check that was run, of which these instruments failed; nullopt if a name is
// no instrument's.
std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names);

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
  // False: NVML could not be asked, and only self_check, retried_runs and unblocked mean anything.
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
  // Mask of SelfCheckBit; 0: not run.
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

// Adds another look at the GPU to `conditions`: the worst of both, and the newer settings.
void Merge(const Conditions& look, Conditions* conditions);

// Says in words why a measurement under these conditions is not clean; empty if it is
// clean.
std::vector<std::string> Marks(const Conditions& conditions);

// "power cap", "thermal slowdown", ... of each bit that is set.
std::vector<std::string> ClockReasonNames(uint32_t reasons);

}  // namespace convtune
