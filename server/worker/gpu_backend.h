// A GpuBackend works on a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <functional>
#include <memory>

#include "server/worker/backend.h"
#include "server/worker/cudnn/owned.h"
#include "server/worker/device/cuda_stream.h"
#include "server/worker/device/device_info.h"
#include "server/worker/device/kernels.h"
#include "server/worker/device/nvml.h"
#include "server/worker/gpu_problem.h"
#include "server/worker/timing/timer.h"

namespace convtune::worker {

// Holds the CUDA context, a stream, a cuDNN handle, our kernels and a timer for
// as long as it lives. Not thread-safe.
class GpuBackend : public Backend {
 public:
  // UNAVAILABLE without a driver or GPU, else CUDA's, cuDNN's or `on_step`'s error.
  static absl::StatusOr<std::unique_ptr<GpuBackend>> Create(int ordinal, const OnStart& on_step);

  const Environment& environment() const override { return info_.environment; }
  const Provenance& provenance() const override { return info_.provenance; }
  bool has_gpu() const override { return true; }
  ConditionsLook LookAtConditions() override;
  absl::StatusOr<SelfCheck> CheckSelf(
      uint32_t lost_steps, const std::function<absl::Status(uint32_t step)>& on_step) override;
  void Apply(const SelfCheck& check) override;
  void Recover() override;
  absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                       int64_t memory_budget_bytes) override;

 private:
  explicit GpuBackend(device::DeviceInfo info) : info_(std::move(info)) {}

  GpuResources resources() {
    return {handle_.get(),  stream_.get(),     timer_.get(),
            kernels_.get(), blocking_kernels_, captures_};
  }

  const device::DeviceInfo info_;
  // Each is of those before it, and ends before them.
  cudnn::Owned<cudaStream_t, cudaStreamDestroy> stream_;
  cudnn::Owned<cudnnHandle_t, cudnnDestroy> handle_;
  std::unique_ptr<device::Kernels> kernels_;
  std::unique_ptr<device::CudaStream> timed_stream_;
  std::unique_ptr<timing::Timer> timer_;
  bool blocking_kernels_ = true;
  bool captures_ = true;
  int64_t flush_bytes_ = 0;
  double memory_bytes_per_second_ = 0;
  absl::StatusOr<std::unique_ptr<device::Nvml>> nvml_;
};

}  // namespace convtune::worker
