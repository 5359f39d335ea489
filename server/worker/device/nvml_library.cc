#include "server/worker/device/nvml_library.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::device {

absl::StatusOr<std::unique_ptr<NvmlLibrary>> NvmlLibrary::Open() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnimplementedError(absl::StrCat("NVML: ", dlerror()));
  std::unique_ptr<NvmlLibrary> nvml(new NvmlLibrary(library));
  RETURN_IF_ERROR(nvml->ToStatus(nvml->Call("nvmlInit_v2"), "start"));
  nvml->started_ = true;
  return nvml;
}

NvmlLibrary::~NvmlLibrary() {
  if (started_) Call("nvmlShutdown");
  dlclose(library_);
}

absl::StatusOr<NvmlDevice> NvmlLibrary::FindDevice(const std::string& pci_bus_id) const {
  NvmlDevice device = nullptr;
  RETURN_IF_ERROR(
      ToStatus(Call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device), pci_bus_id));
  return device;
}

absl::Status NvmlLibrary::ToStatus(NvmlReturn result, const std::string& what) const {
  if (result == kNvmlSuccess) return absl::OkStatus();
  if (result == kNvmlFunctionNotFound) {
    return absl::UnimplementedError("NVML: the library is too old");
  }
  void* const error_string = dlsym(library_, "nvmlErrorString");
  const std::string words = absl::StrCat(
      "NVML: ", what, ": ",
      error_string != nullptr ? reinterpret_cast<const char* (*)(NvmlReturn)>(error_string)(result)
                              : absl::StrCat(result));
  if (result == kNvmlGpuIsLost || result == kNvmlResetRequired) return absl::DataLossError(words);
  return result == kNvmlNotSupported ? absl::UnimplementedError(words)
                                     : absl::UnavailableError(words);
}

}  // namespace convtune::worker::device
