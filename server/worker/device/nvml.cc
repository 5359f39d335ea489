#include "server/worker/device/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::device {
namespace {

// Of NVML's API (nvml.h), as far as it is used; its numbers are fixed.
using Return = int;
using Device = void*;
constexpr Return kSuccess = 0;
constexpr Return kInsufficientSize = 7;
constexpr unsigned kTemperatureGpu = 0;
constexpr int kUncorrectedError = 1;
constexpr int kVolatileCounter = 0;
constexpr int kPowerPolicy = 0;
constexpr int kThermalPolicy = 1;

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_gpu_memory;  // NOLINT(google-runtime-int): NVML's
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

struct ViolationTime {
  unsigned long long reference_us;  // NOLINT(google-runtime-int): NVML's
  unsigned long long violation_ns;  // NOLINT(google-runtime-int): NVML's
};

using ListProcesses = Return (*)(Device, unsigned*, ProcessInfo*);

// More than a GPU ever has.
constexpr unsigned kMostProcesses = 4096;

bool List(ListProcesses list, Device device, std::vector<ProcessInfo>* processes) {
  if (list == nullptr) return false;
  unsigned count = 0;
  Return result = list(device, &count, nullptr);
  // Processes may come while they are counted.
  while (result == kInsufficientSize && count < kMostProcesses) {
    count = count * 2 + 8;
    processes->resize(count);
    result = list(device, &count, processes->data());
  }
  if (result != kSuccess) return false;
  processes->resize(std::min<size_t>(processes->size(), count));
  return true;
}

// The process itself is among those listed, but in a container its number
// there may be another.
int CountOthers(const std::vector<ProcessInfo>& processes) {
  const auto own = static_cast<unsigned>(getpid());
  const bool found = std::any_of(processes.begin(), processes.end(),
                                 [own](const ProcessInfo& process) { return process.pid == own; });
  const int count = static_cast<int>(processes.size());
  return found || count > 0 ? count - 1 : 0;
}

}  // namespace

struct Nvml::Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*handle_by_pci_bus_id)(const char*, Device*) = nullptr;
  ListProcesses compute_processes = nullptr;
  ListProcesses mps_processes = nullptr;
  Return (*clock_reasons)(Device,
                          unsigned long long*) = nullptr;  // NOLINT(google-runtime-int): NVML's
  Return (*power_limit)(Device, unsigned*) = nullptr;
  Return (*temperature)(Device, unsigned, unsigned*) = nullptr;
  Return (*ecc_errors)(Device, int, int,
                       unsigned long long*) = nullptr;  // NOLINT(google-runtime-int): NVML's
  Return (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  Return (*compute_mode)(Device, int*) = nullptr;
  Return (*violation)(Device, int, ViolationTime*) = nullptr;

  // Those that the library does not have stay null.
  explicit Functions(void* library) {
    Load(library, "nvmlInit_v2", &init);
    Load(library, "nvmlShutdown", &shutdown);
    Load(library, "nvmlErrorString", &error_string);
    Load(library, "nvmlDeviceGetHandleByPciBusId_v2", &handle_by_pci_bus_id);
    Load(library, "nvmlDeviceGetComputeRunningProcesses_v3", &compute_processes);
    Load(library, "nvmlDeviceGetMPSComputeRunningProcesses_v3", &mps_processes);
    Load(library, "nvmlDeviceGetCurrentClocksEventReasons", &clock_reasons);
    // Its name before driver 535.
    if (clock_reasons == nullptr) {
      Load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &clock_reasons);
    }
    Load(library, "nvmlDeviceGetEnforcedPowerLimit", &power_limit);
    Load(library, "nvmlDeviceGetTemperature", &temperature);
    Load(library, "nvmlDeviceGetTotalEccErrors", &ecc_errors);
    Load(library, "nvmlDeviceGetMigMode", &mig_mode);
    Load(library, "nvmlDeviceGetComputeMode", &compute_mode);
    Load(library, "nvmlDeviceGetViolationStatus", &violation);
  }

  template <typename Function>
  static void Load(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
  }

  absl::Status ToStatus(Return result, const char* what) const {
    if (result == kSuccess) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("NVML: ", what, ": ",
                     error_string != nullptr ? error_string(result) : absl::StrCat(result)));
  }
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(absl::StrCat("NVML: ", dlerror()));
  auto functions = std::make_unique<Functions>(library);
  if (functions->init == nullptr || functions->shutdown == nullptr ||
      functions->handle_by_pci_bus_id == nullptr) {
    dlclose(library);
    return absl::UnavailableError("NVML: the library is too old");
  }
  absl::Status status = functions->ToStatus(functions->init(), "start");
  if (!status.ok()) {
    dlclose(library);
    return status;
  }
  Device device = nullptr;
  status = functions->ToStatus(functions->handle_by_pci_bus_id(pci_bus_id.c_str(), &device),
                               pci_bus_id.c_str());
  if (!status.ok()) {
    functions->shutdown();
    dlclose(library);
    return status;
  }
  return std::unique_ptr<Nvml>(new Nvml(library, std::move(functions), device));
}

Nvml::Nvml(void* library, std::unique_ptr<Functions> functions, void* device)
    : library_(library), functions_(std::move(functions)), device_(device) {
  ReadSettings();
}

Nvml::~Nvml() {
  functions_->shutdown();
  dlclose(library_);
}

void Nvml::ReadSettings() {
  const Functions& nvml = *functions_;
  settings_ = Conditions();
  unsigned current = 0;
  unsigned pending = 0;
  settings_.mig = nvml.mig_mode != nullptr &&
                  nvml.mig_mode(device_, &current, &pending) == kSuccess && current == 1;
  unsigned milliwatts = 0;
  if (nvml.power_limit != nullptr && nvml.power_limit(device_, &milliwatts) == kSuccess) {
    settings_.power_limit_watts = milliwatts / 1000.0;
  }
  unsigned long long errors = 0;  // NOLINT(google-runtime-int): NVML's
  if (nvml.ecc_errors != nullptr &&
      nvml.ecc_errors(device_, kUncorrectedError, kVolatileCounter, &errors) == kSuccess) {
    settings_.ecc_errors = static_cast<int64_t>(errors);
  }
  int mode = 0;
  if (nvml.compute_mode != nullptr && nvml.compute_mode(device_, &mode) == kSuccess && mode >= 0 &&
      mode + 1 <= static_cast<int>(ComputeMode::kExclusiveProcess)) {
    settings_.compute_mode = static_cast<ComputeMode>(mode + 1);
  }
}

ConditionsLook Nvml::Look() const {
  ConditionsLook look;
  Conditions& conditions = look.conditions;
  const Functions& nvml = *functions_;
  conditions = settings_;
  std::vector<ProcessInfo> processes;
  std::vector<ProcessInfo> clients;
  conditions.known = List(nvml.compute_processes, device_, &processes);
  conditions.mps = List(nvml.mps_processes, device_, &clients) && !clients.empty();
  // This process has a context. Where even that is not listed, as in some
  // containers, a list without others says nothing of them; clocks, heat and
  // ECC errors are the GPU's all the same.
  if (!conditions.known) {
    look.unknown_reason = "NVML does not list the processes of the GPU";
  } else if (processes.empty() && !conditions.mps && !conditions.mig) {
    look.unknown_reason = "NVML lists no process of the GPU, not even this one";
  }
  if (!conditions.mig) conditions.other_processes = CountOthers(processes);
  unsigned long long reasons = 0;  // NOLINT(google-runtime-int): NVML's
  if (nvml.clock_reasons != nullptr && nvml.clock_reasons(device_, &reasons) == kSuccess) {
    conditions.clock_reasons = static_cast<uint32_t>(reasons);
  }
  unsigned celsius = 0;
  if (nvml.temperature != nullptr &&
      nvml.temperature(device_, kTemperatureGpu, &celsius) == kSuccess) {
    conditions.temperature_celsius = static_cast<int>(celsius);
  }
  look.hot_ns = Violation(kThermalPolicy);
  look.capped_ns = Violation(kPowerPolicy);
  return look;
}

int64_t Nvml::Violation(int policy) const {
  ViolationTime time = {};
  if (functions_->violation == nullptr ||
      functions_->violation(device_, policy, &time) != kSuccess) {
    return 0;
  }
  return static_cast<int64_t>(time.violation_ns);
}

}  // namespace convtune::worker::device
