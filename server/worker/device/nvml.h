// Nvml reads the state of a GPU.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/worker/backend.h"
#include "server/worker/device/nvml_library.h"

namespace convtune::worker::device {

// One GPU in libnvidia-ml.so.1. Not thread-safe.
class Nvml {
 public:
  // `pci_bus_id` as cudaDeviceGetPCIBusId writes it. Errors, with NVML's or the
  // loader's words, are NvmlLibrary's.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& pci_bus_id);

  // Asks anew for what changes seldom: MIG, the compute mode, the power limit
  // and the ECC errors. Open() has asked.
  void ReadSettings();
  // Asks for everything else. What NVML does not support on this GPU is left
  // at its default. Where processes of the GPU cannot be listed, conditions.known is false.
  // REQUIRES: this process has a context on the GPU; where the list lacks it, unknown_reason
  // says that others would not be seen either. Under MIG processes are not counted, since NVML
  // lists those of all instances.
  ConditionsLook Look() const;

 private:
  Nvml(std::unique_ptr<NvmlLibrary> nvml, NvmlDevice device);

  // 0 where it cannot be told.
  int64_t Violation(int policy) const;

  const std::unique_ptr<NvmlLibrary> nvml_;
  const NvmlDevice device_;
  Conditions settings_;
};

}  // namespace convtune::worker::device
