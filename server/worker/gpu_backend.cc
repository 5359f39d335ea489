#include "server/worker/gpu_backend.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/worker/cudnn_library.h"
#include "server/worker/cudnn_status.h"
#include "server/worker/device_memory.h"
#include "server/worker/gpu_problem.h"

namespace convtune {

absl::StatusOr<std::unique_ptr<GpuBackend>> GpuBackend::Create(int ordinal) {
  KeepNvrtcLoaded();
  ASSIGN_OR_RETURN(DeviceInfo info, DescribeGpu(ordinal));
  std::unique_ptr<GpuBackend> backend(new GpuBackend(std::move(info)));
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(ordinal), "select the GPU"));
  RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&backend->stream_, cudaStreamNonBlocking),
                           "create a stream"));
  RETURN_IF_ERROR(ToStatus(cudnnCreate(&backend->handle_), "create a cuDNN handle"));
  RETURN_IF_ERROR(
      ToStatus(cudnnSetStream(backend->handle_, backend->stream_), "set cuDNN's stream"));
  ASSIGN_OR_RETURN(backend->timer_, CudaEventTimer::Create(backend->stream_));
  char pci_bus_id[32] = "";
  RETURN_IF_ERROR(ToStatus(cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), ordinal),
                           "ask for the GPU's PCI address"));
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(pci_bus_id);
  if (nvml.ok()) {
    backend->nvml_ = *std::move(nvml);
  } else {
    backend->nvml_failure_ = std::string(nvml.status().message());
  }
  return backend;
}

GpuBackend::~GpuBackend() {
  timer_.reset();
  if (handle_ != nullptr) {
    cudnnDestroy(handle_);
  }
  if (stream_ != nullptr) {
    cudaStreamDestroy(stream_);
  }
}

ConditionsLook GpuBackend::LookAtConditions() {
  return nvml_ != nullptr ? nvml_->Look() : ConditionsLook{{}, nvml_failure_};
}

absl::StatusOr<std::unique_ptr<BackendProblem>> GpuBackend::Open(const ConvProblem& problem,
                                                                 int64_t memory_budget_bytes) {
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeDeviceMemory());
  // Code of kernels is loaded as they are first used: that needs room too.
  const int64_t usable = free_bytes - free_bytes / 16;
  const int64_t budget = memory_budget_bytes > 0 ? std::min(memory_budget_bytes, usable) : usable;
  ASSIGN_OR_RETURN(std::unique_ptr<GpuProblem> opened,
                   GpuProblem::Create(problem, handle_, timer_.get(), budget));
  return opened;
}

}  // namespace convtune
