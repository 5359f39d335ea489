// cuDNN's handles.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <utility>

#include "absl/status/statusor.h"
#include "server/worker/lanes.h"

namespace convtune {

// Owns one cudnnHandle_t. Move-only.
class CudnnHandle {
 public:
  // For the thread's card. `stream` outlives the handle. Errors are cuDNN's.
  static absl::StatusOr<CudnnHandle> Create(cudaStream_t stream);

  CudnnHandle() = default;
  CudnnHandle(CudnnHandle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnHandle& operator=(CudnnHandle&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~CudnnHandle();

  cudnnHandle_t get() const { return raw_; }

 private:
  explicit CudnnHandle(cudnnHandle_t raw) : raw_(raw) {}

  cudnnHandle_t raw_ = nullptr;
};

// One handle for each lane, all on one stream, made when a lane first asks for
// it. Different lanes may ask at the same time.
class LaneHandles {
 public:
  LaneHandles() = default;
  // `ordinal` is the card's, and the calling thread's card.
  static absl::StatusOr<LaneHandles> Create(int ordinal, cudaStream_t stream);

  // Makes the card the calling thread's. Errors are CUDA's and cuDNN's.
  absl::StatusOr<cudnnHandle_t> Get(int lane);
  // Lane 0's.
  cudnnHandle_t first() const { return handles_[0].get(); }

 private:
  int ordinal_ = 0;
  cudaStream_t stream_ = nullptr;
  std::array<CudnnHandle, kMostLanes> handles_;
};

}  // namespace convtune
