// A CudnnHandle owns a handle of cuDNN.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <utility>

#include "absl/status/statusor.h"

namespace convtune::worker::cudnn {

// Owns one cudnnHandle_t. Move-only.
class CudnnHandle {
 public:
  // For the thread's GPU. `stream` outlives the handle. Errors are cuDNN's.
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

}  // namespace convtune::worker::cudnn
