// A NvmlWatch reports a GPU's driver errors as they come, and whether the GPU can
// be used at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/device/nvml_library.h"

namespace convtune::worker::device {

// One GPU in libnvidia-ml.so.1. Needs neither CUDA nor cuDNN. Not thread-safe.
class NvmlWatch {
 public:
  // UNIMPLEMENTED: there is no such library, it is too old, or the GPU reports
  // no events: nothing can be watched. DATA_LOSS: the GPU is lost, or has to
  // be reset. UNAVAILABLE: anything else that NVML refuses, in its words.
  static absl::StatusOr<std::unique_ptr<NvmlWatch>> Open(const std::string& pci_bus_id);
  ~NvmlWatch();
  NvmlWatch(const NvmlWatch&) = delete;
  NvmlWatch& operator=(const NvmlWatch&) = delete;

  // DATA_LOSS if the GPU is lost or the driver asks for a reset.
  absl::Status Look() const;
  // Waits for an Xid of this GPU; 0 after `timeout`. Those that came before
  // Open are not told. Errors as Open.
  absl::StatusOr<int64_t> NextXid(absl::Duration timeout);

 private:
  NvmlWatch(std::unique_ptr<NvmlLibrary> nvml, std::string pci_bus_id)
      : nvml_(std::move(nvml)), pci_bus_id_(std::move(pci_bus_id)) {}
  absl::Status Start();

  const std::unique_ptr<NvmlLibrary> nvml_;
  const std::string pci_bus_id_;
  void* events_ = nullptr;
};

// Writes a line for each thing that the daemon has to know to the socket `fd`:
//   watching      the GPU works, and is watched from now on
//   xid N         the driver reported it
//   lost WHY      the GPU is lost, or has to be reset
//   away WHY      NVML refuses; the GPU may come back
//   unwatchable WHY
// and ends with OK after the last three. Returns an error if nobody reads.
absl::Status WatchDevice(const std::string& pci_bus_id, int fd);

}  // namespace convtune::worker::device
