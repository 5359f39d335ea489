// A CudaStream is the timer's stream on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/cudnn/owned.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/device/kernels.h"
#include "server/worker/timing/timer.h"

namespace convtune::worker::device {

// Not thread-safe. Times are in microseconds, sizes in bytes.
class CudaStream : public timing::TimedStream {
 public:
  // Allocates all that it will ever need, the memory that Flush() reads
  // included. `stream` and `kernels` outlive it. `l2_bytes`: of the GPU.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(cudaStream_t stream, Kernels* kernels,
                                                            int64_t l2_bytes);

  absl::Status Block(absl::Duration limit) override;
  void Release() override;
  absl::Status Synchronize() override;
  bool GaveUp() const override;
  absl::Status PutStamp(int slot) override;
  Stamp ReadStamp(int slot) const override;
  absl::Status Flush(int64_t read_next) override;
  absl::Status Read(const void* data, int64_t bytes) override;
  absl::Status Record(int event) override;
  absl::StatusOr<double> ElapsedUs(int first, int second) override;

 private:
  // Memory of the host that the GPU reads and writes.
  struct Shared {
    alignas(16) Stamp stamps[kStamps] = {};
    uint32_t open = 0;  // 1: the blocking kernel ends
    uint32_t gave_up = 0;
  };

  CudaStream(cudaStream_t stream, Kernels* kernels) : stream_(stream), kernels_(kernels) {}

  // Returns the GPU's address of a field of shared_.
  void* OnDevice(const volatile void* field) const;

  const cudaStream_t stream_;
  Kernels* const kernels_;
  DeviceBuffer flush_;
  cudnn::Owned<void*, cudaFreeHost> host_memory_;
  volatile Shared* shared_ = nullptr;  // in host_memory_
  void* shared_on_device_ = nullptr;
  std::array<cudnn::Owned<cudaEvent_t, cudaEventDestroy>, kEvents> events_;
};

// A CapturedGraph is a launch captured into a CUDA graph.
//
// Move-only; not thread-safe.
class CapturedGraph {
 public:
  // Captures what `launch` puts on `stream`, which is put there by this thread
  // alone, and makes it ready to be replayed. Errors are those of the launch
  // while it is captured, and CUDA's; the stream can be used after them.
  static absl::StatusOr<CapturedGraph> Capture(cudaStream_t stream,
                                               const std::function<absl::Status()>& launch);

  // Puts one replay on the stream.
  absl::Status Launch(cudaStream_t stream) const;

 private:
  CapturedGraph() = default;

  cudnn::Owned<cudaGraphExec_t, cudaGraphExecDestroy> exec_;
};

}  // namespace convtune::worker::device
