// GpuResources are what the problems on a GPU share. A BackendProblem is opened with them.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>

#include "server/worker/backend.h"
#include "server/worker/device/kernels.h"
#include "server/worker/timing/timer.h"

namespace convtune::worker {

// `stream` is the handle's, and `timed_stream` takes samples on it.
struct GpuResources {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  timing::TimedStream* timed_stream = nullptr;
  device::Kernels* kernels = nullptr;
  bool blocking_kernels = true;  // they work
  bool captures = true;          // false: nothing is captured
};

// `resources` outlive the problem. RESOURCE_EXHAUSTED if the tensors, and
// what is needed to check results, alone exceed the budget; else cuDNN's
// errors.
absl::StatusOr<std::unique_ptr<BackendProblem>> OpenGpuProblem(const ConvProblem& problem,
                                                               const GpuResources& resources,
                                                               int64_t memory_budget_bytes);

// The last steps of the self-check: see SelfCheckDevice::run_after_spoilt_capture.
absl::StatusOr<worker::v1::Checked> RunAfterSpoiltCapture(const GpuResources& resources);

}  // namespace convtune::worker
