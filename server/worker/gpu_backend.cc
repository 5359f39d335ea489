#include "server/worker/gpu_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/gpu_self_check.h"

namespace convtune::worker {

namespace {

// Returns the bandwidth of the GPU's memory; 0 if it is not known.
double MemoryBytesPerSecond(int ordinal) {
  int khz = 0;
  int bits = 0;
  if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, ordinal) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 2.0 * khz * 1e3 * bits / 8;  // two transfers in each cycle
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuBackend>> GpuBackend::Create(int ordinal,
                                                               const OnStart& on_step) {
  cudnn::KeepNvrtcLoaded();
  cudnn::LoadLegacyLibraries();
  ASSIGN_OR_RETURN(device::DeviceInfo info, device::DescribeGpu(ordinal));
  std::unique_ptr<GpuBackend> backend(new GpuBackend(std::move(info)));
  RETURN_IF_ERROR(on_step("create a CUDA context"));
  RETURN_IF_ERROR(cudnn::ToStatus(cudaSetDevice(ordinal), "select the GPU"));
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                  "create a stream"));
  backend->stream_.reset(stream);
  RETURN_IF_ERROR(on_step("create a cuDNN handle"));
  cudnnHandle_t handle = nullptr;
  RETURN_IF_ERROR(cudnn::ToStatus(cudnnCreate(&handle), "create a cuDNN handle"));
  backend->handle_.reset(handle);
  RETURN_IF_ERROR(cudnn::ToStatus(cudnnSetStream(handle, stream), "set cuDNN's stream"));
  RETURN_IF_ERROR(on_step("load the worker's kernels"));
  ASSIGN_OR_RETURN(backend->kernels_,
                   device::Kernels::Load(backend->info_.environment.sm_count, stream));
  int l2_bytes = 0;
  RETURN_IF_ERROR(
      cudnn::ToStatus(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, ordinal),
                      "ask for the size of the L2 cache"));
  backend->flush_bytes_ = timing::FlushBytes(l2_bytes);
  backend->memory_bytes_per_second_ = MemoryBytesPerSecond(ordinal);
  ASSIGN_OR_RETURN(backend->timed_stream_,
                   device::CudaStream::Create(stream, backend->kernels_.get(), l2_bytes));
  backend->timer_ = std::make_unique<timing::Timer>(backend->timed_stream_.get());
  char pci_bus_id[32] = "";
  RETURN_IF_ERROR(cudnn::ToStatus(cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), ordinal),
                                  "ask for the GPU's PCI address"));
  backend->nvml_ = device::Nvml::Open(pci_bus_id);
  return backend;
}

ConditionsLook GpuBackend::LookAtConditions() {
  if (nvml_.ok()) return (*nvml_)->Look();
  return {{}, std::string(nvml_.status().message())};
}

absl::StatusOr<SelfCheck> GpuBackend::CheckSelf(
    uint32_t lost_steps, const std::function<absl::Status(uint32_t step)>& on_step) {
  verify::SelfCheckOptions options;
  options.lost_steps = lost_steps;
  // A step that loses the context ends the process before the next one is named.
  options.on_step = [&](uint32_t step) {
    Recover();
    return on_step(step);
  };
  GpuSelfCheckDevice card(resources(), timed_stream_.get(), flush_bytes_, memory_bytes_per_second_);
  absl::StatusOr<SelfCheck> check = verify::RunSelfCheck(options, &card);
  Recover();
  return check;
}

void GpuBackend::Apply(const SelfCheck& check) {
  if (check.known && !check.blocking_kernel) blocking_kernels_ = false;
  captures_ = MayCapture(check);
}

void GpuBackend::Recover() { cudnn::Recover(stream_.get()); }

absl::StatusOr<std::unique_ptr<BackendProblem>> GpuBackend::Open(const ConvProblem& problem,
                                                                 int64_t memory_budget_bytes) {
  if (nvml_.ok()) (*nvml_)->ReadSettings();
  ASSIGN_OR_RETURN(const int64_t free_bytes, device::FreeDeviceMemory());
  // Code of kernels is loaded as they are first used: that needs room too.
  const int64_t usable = free_bytes - free_bytes / 16;
  // What the timer reads to flush the cache is allocated already, and counts.
  const int64_t budget =
      memory_budget_bytes > 0 ? std::min(memory_budget_bytes - flush_bytes_, usable) : usable;
  if (budget <= 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory_budget_bytes: flushing the GPU's cache needs ", flush_bytes_, " of ",
                     memory_budget_bytes));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<GpuProblem> opened,
                   GpuProblem::Create(problem, resources(), budget));
  return opened;
}

}  // namespace convtune::worker
