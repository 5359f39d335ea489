// How long a launch takes on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/backend.h"

namespace convtune {

// Times launches on one stream. Not thread-safe.
class Timer {
 public:
  // Puts the work to be timed on the timer's stream, without waiting for it.
  using Launch = std::function<absl::Status()>;

  virtual ~Timer() = default;

  // Runs it once, alone on the stream, and waits for it to end. Errors are
  // those of the launch and of the work.
  virtual absl::StatusOr<TimedRun> Time(const Launch& launch) = 0;
};

// Two CUDA events around the launch. The time that the host needs to launch is
// inside for work that is shorter than it.
class CudaEventTimer : public Timer {
 public:
  // `stream` outlives the timer.
  static absl::StatusOr<std::unique_ptr<CudaEventTimer>> Create(cudaStream_t stream);
  ~CudaEventTimer() override;
  CudaEventTimer(const CudaEventTimer&) = delete;
  CudaEventTimer& operator=(const CudaEventTimer&) = delete;

  absl::StatusOr<TimedRun> Time(const Launch& launch) override;

 private:
  explicit CudaEventTimer(cudaStream_t stream) : stream_(stream) {}

  const cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace convtune
