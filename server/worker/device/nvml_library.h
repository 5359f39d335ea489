// An NvmlLibrary is libnvidia-ml.so.1, loaded at run time: the driver brings it, and a
// machine without a driver has none.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::worker::device {

// These are of NVML's API (nvml.h), as far as it is used; its numbers are fixed.
using NvmlReturn = int;
using NvmlDevice = void*;
inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlNotSupported = 3;
inline constexpr NvmlReturn kNvmlInsufficientSize = 7;
inline constexpr NvmlReturn kNvmlTimeout = 10;
inline constexpr NvmlReturn kNvmlFunctionNotFound = 13;
inline constexpr NvmlReturn kNvmlGpuIsLost = 15;
inline constexpr NvmlReturn kNvmlResetRequired = 16;

// Not thread-safe.
class NvmlLibrary {
 public:
  // Loads and starts it. UNIMPLEMENTED: there is none, or it is too old; else as ToStatus.
  static absl::StatusOr<std::unique_ptr<NvmlLibrary>> Open();
  // Ends and unloads it.
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  // Calls a function by its name; kNvmlFunctionNotFound where the library does not have it.
  // REQUIRES: the arguments have the very types of the function's parameters.
  template <typename... Arguments>
  NvmlReturn Call(const char* function, Arguments... arguments) const {
    void* const found = dlsym(library_, function);
    if (found == nullptr) return kNvmlFunctionNotFound;
    return reinterpret_cast<NvmlReturn (*)(Arguments...)>(found)(arguments...);
  }

  // The GPU at an address as cudaDeviceGetPCIBusId writes it. Errors as ToStatus.
  absl::StatusOr<NvmlDevice> FindDevice(const std::string& pci_bus_id) const;

  // OK, or NVML's words behind `what`. UNIMPLEMENTED: the library or the GPU cannot do it.
  // DATA_LOSS: the GPU is lost, or has to be reset. UNAVAILABLE: anything else.
  absl::Status ToStatus(NvmlReturn result, const std::string& what) const;

 private:
  explicit NvmlLibrary(void* library) : library_(library) {}

  void* const library_;
  bool started_ = false;
};

}  // namespace convtune::worker::device
