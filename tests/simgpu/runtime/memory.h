// DeviceMemory is the simulated GPU's memory: memory of the host between pages
// that nothing may touch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

#include "tests/simgpu/runtime/work.h"

namespace convtune::simgpu {

// Not thread-safe. Memory is poisoned with kPoison when it is allocated, and
// unmapped when it is freed. Its addresses are never used again, so that a stale
// pointer is noticed.
class DeviceMemory {
 public:
  static constexpr unsigned char kPoison = 0xA5;
  // Free, and yet not to be had: CUDA does not promise all that it calls free.
  static constexpr int64_t kHeldBytes = int64_t{32} << 20;

  explicit DeviceMemory(int64_t total_bytes) : total_bytes_(total_bytes) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Aligned to 256 bytes, as is promised, and to no more; the end lies as close
  // before an untouchable page as this allows. cudaErrorMemoryAllocation where
  // no more is free. `mapped`: host memory that the GPU sees too, at the same address.
  cudaError_t Allocate(int64_t bytes, void** data, bool mapped = false);
  // cudaErrorInvalidValue if nothing of this kind was allocated at `data`. Null is allowed.
  cudaError_t Free(void* data, bool mapped = false);

  // Bytes that were allocated at `data`; 0: nothing was.
  int64_t BytesAt(const void* data) const;
  // True if the GPU may touch all of it: it lies in one allocation, mapped ones included.
  bool Contains(const void* data, int64_t bytes) const;
  // True if it lies in memory of the host that the GPU sees.
  bool IsMapped(const void* data) const;
  int64_t free_bytes() const { return total_bytes_ - used_bytes_; }
  int64_t total_bytes() const { return total_bytes_; }

 private:
  struct Block {
    int64_t bytes = 0;
    void* mapping = nullptr;
    int64_t mapping_bytes = 0;
    bool mapped = false;
  };

  const int64_t total_bytes_;
  int64_t used_bytes_ = 0;
  std::map<const char*, Block> blocks_;  // by their begin
};

}  // namespace convtune::simgpu
