#include "server/worker/device/nvml.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"

namespace convtune::worker::device {
namespace {

// These are of NVML's API, see nvml_library.h.
constexpr unsigned kTemperatureGpu = 0;
constexpr int kUncorrectedError = 1;
constexpr int kVolatileCounter = 0;
constexpr int kPowerPolicy = 0;
constexpr int kThermalPolicy = 1;
using Wide = unsigned long long;  // NOLINT(google-runtime-int): NVML's

struct ProcessInfo {
  unsigned pid;
  Wide used_gpu_memory;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

struct ViolationTime {
  Wide reference_us;
  Wide violation_ns;
};

// More than a GPU ever has.
constexpr unsigned kMostProcesses = 4096;

bool List(const NvmlLibrary& nvml, const char* function, NvmlDevice device,
          std::vector<ProcessInfo>* processes) {
  unsigned count = 0;
  NvmlReturn result = nvml.Call(function, device, &count, static_cast<ProcessInfo*>(nullptr));
  // Processes may come while they are counted.
  while (result == kNvmlInsufficientSize && count < kMostProcesses) {
    count = count * 2 + 8;
    processes->resize(count);
    result = nvml.Call(function, device, &count, processes->data());
  }
  if (result != kNvmlSuccess) return false;
  processes->resize(std::min<size_t>(processes->size(), count));
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& pci_bus_id) {
  ASSIGN_OR_RETURN(std::unique_ptr<NvmlLibrary> nvml, NvmlLibrary::Open());
  ASSIGN_OR_RETURN(const NvmlDevice device, nvml->FindDevice(pci_bus_id));
  return std::unique_ptr<Nvml>(new Nvml(std::move(nvml), device));
}

Nvml::Nvml(std::unique_ptr<NvmlLibrary> nvml, NvmlDevice device)
    : nvml_(std::move(nvml)), device_(device) {
  ReadSettings();
}

void Nvml::ReadSettings() {
  settings_ = Conditions();
  unsigned current = 0;
  unsigned pending = 0;
  settings_.mig =
      nvml_->Call("nvmlDeviceGetMigMode", device_, &current, &pending) == kNvmlSuccess &&
      current == 1;
  unsigned milliwatts = 0;
  if (nvml_->Call("nvmlDeviceGetEnforcedPowerLimit", device_, &milliwatts) == kNvmlSuccess) {
    settings_.power_limit_watts = milliwatts / 1000.0;
  }
  Wide errors = 0;
  if (nvml_->Call("nvmlDeviceGetTotalEccErrors", device_, kUncorrectedError, kVolatileCounter,
                  &errors) == kNvmlSuccess) {
    settings_.ecc_errors = static_cast<int64_t>(errors);
  }
  int mode = 0;
  if (nvml_->Call("nvmlDeviceGetComputeMode", device_, &mode) == kNvmlSuccess && mode >= 0 &&
      mode + 1 <= static_cast<int>(ComputeMode::kExclusiveProcess)) {
    settings_.compute_mode = static_cast<ComputeMode>(mode + 1);
  }
}

ConditionsLook Nvml::Look() const {
  ConditionsLook look;
  Conditions& conditions = look.conditions;
  conditions = settings_;
  std::vector<ProcessInfo> processes;
  std::vector<ProcessInfo> clients;
  conditions.known = List(*nvml_, "nvmlDeviceGetComputeRunningProcesses_v3", device_, &processes);
  conditions.mps = List(*nvml_, "nvmlDeviceGetMPSComputeRunningProcesses_v3", device_, &clients) &&
                   !clients.empty();
  // This process has a context. Where even that is not listed, as in some
  // containers, a list without others says nothing of them; clocks, heat and
  // ECC errors are the GPU's all the same.
  if (!conditions.known) {
    look.unknown_reason = "NVML does not list the processes of the GPU";
  } else if (processes.empty() && !conditions.mps && !conditions.mig) {
    look.unknown_reason = "NVML lists no process of the GPU, not even this one";
  }
  // One of those listed is this process, by its number or, in a container, by another.
  if (!conditions.mig) {
    conditions.other_processes = std::max(static_cast<int>(processes.size()) - 1, 0);
  }
  Wide reasons = 0;
  // The second is its name before driver 535.
  for (const char* function :
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}) {
    const NvmlReturn result = nvml_->Call(function, device_, &reasons);
    if (result == kNvmlSuccess) conditions.clock_reasons = static_cast<uint32_t>(reasons);
    if (result != kNvmlFunctionNotFound) break;
  }
  unsigned celsius = 0;
  if (nvml_->Call("nvmlDeviceGetTemperature", device_, kTemperatureGpu, &celsius) == kNvmlSuccess) {
    conditions.temperature_celsius = static_cast<int>(celsius);
  }
  look.hot_ns = Violation(kThermalPolicy);
  look.capped_ns = Violation(kPowerPolicy);
  return look;
}

int64_t Nvml::Violation(int policy) const {
  ViolationTime time = {};
  if (nvml_->Call("nvmlDeviceGetViolationStatus", device_, policy, &time) != kNvmlSuccess) {
    return 0;
  }
  return static_cast<int64_t>(time.violation_ns);
}

}  // namespace convtune::worker::device
