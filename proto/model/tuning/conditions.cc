#include "proto/model/tuning/conditions.h"

#include <algorithm>

#include "proto/base/strings.h"

namespace convtune {
namespace {

std::string Join(const std::vector<std::string>& parts) {
  std::string joined;
  for (const std::string& part : parts) AppendTo(&joined, joined.empty() ? "" : ", ", part);
  return joined;
}

}  // namespace

void Merge(const Conditions& look, Conditions* conditions) {
  conditions->self_check |= look.self_check;
  conditions->retried_runs = std::max(conditions->retried_runs, look.retried_runs);
  if (!look.unblocked.empty()) conditions->unblocked = look.unblocked;
  if (!look.known) return;
  conditions->known = true;
  conditions->other_processes = std::max(conditions->other_processes, look.other_processes);
  conditions->clock_reasons |= look.clock_reasons;
  conditions->power_limit_watts = look.power_limit_watts;
  conditions->temperature_celsius =
      std::max(conditions->temperature_celsius, look.temperature_celsius);
  conditions->ecc_errors = std::max(conditions->ecc_errors, look.ecc_errors);
  conditions->mig |= look.mig;
  conditions->mps |= look.mps;
  conditions->compute_mode = look.compute_mode;
}

std::vector<std::string> Marks(const Conditions& conditions) {
  std::vector<std::string> marks;
  if (!conditions.known) return marks;
  if (conditions.other_processes > 0) {
    marks.push_back(Concat("contended: ", conditions.other_processes,
                           conditions.other_processes == 1 ? " other process" : " other processes",
                           " on the GPU"));
  }
  if (conditions.mps) marks.push_back("contended: an MPS server has the GPU");
  if (conditions.throttled()) {
    marks.push_back(
        Concat("throttled: ", Join(ClockReasonNames(conditions.clock_reasons & kThrottleReasons))));
  }
  if (conditions.ecc_errors > 0) {
    marks.push_back(Concat("uncorrected ECC errors: ", conditions.ecc_errors));
  }
  return marks;
}

std::vector<std::string> ClockReasonNames(uint32_t reasons) {
  static constexpr struct {
    ClockReason reason;
    const char* name;
  } kNames[] = {{ClockReason::kIdle, "idle"},
                {ClockReason::kApplicationClocks, "application clocks"},
                {ClockReason::kPowerCap, "power cap"},
                {ClockReason::kHardwareSlowdown, "hardware slowdown"},
                {ClockReason::kSyncBoost, "sync boost"},
                {ClockReason::kThermalSlowdown, "thermal slowdown"},
                {ClockReason::kHardwareThermalSlowdown, "hardware thermal slowdown"},
                {ClockReason::kPowerBrake, "power brake"},
                {ClockReason::kDisplayClocks, "display clocks"}};
  std::vector<std::string> names;
  for (const auto& [reason, name] : kNames) {
    if ((reasons & static_cast<uint32_t>(reason)) != 0) names.emplace_back(name);
  }
  return names;
}

}  // namespace convtune
