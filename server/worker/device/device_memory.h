// DeviceBuffer and GuardedBuffer own memory of a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/cudnn/owned.h"

namespace convtune::worker::device {

// Memory that an allocation takes from the GPU at most: whole pages.
constexpr int64_t WholePages(int64_t bytes) {
  constexpr int64_t kPage = int64_t{1} << 21;
  return (bytes + kPage - 1) / kPage * kPage;
}

// Owns device memory of the current device. Move-only. Memory is aligned to
// 256 bytes at least.
class DeviceBuffer {
 public:
  // RESOURCE_EXHAUSTED if the GPU has no more. 0 bytes: a null buffer.
  static absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes);

  DeviceBuffer() = default;

  void* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  cudnn::Owned<void*, cudaFree> data_;
  int64_t bytes_ = 0;
};

// Every byte of a red zone, and of outputs and workspace before a run: NaN in
// every floating-point format.
inline constexpr unsigned char kUntouched = 0xFF;

// Says where a red zone is damaged, as "12 bytes, from 4 bytes behind its end";
// empty if all of it is kUntouched. `before`: it lies in front of the memory.
std::string DescribeDamage(std::string_view zone, bool before);

// Memory of a GPU between two red zones, which are there to be checked for
// writes beyond its ends. Move-only.
class GuardedBuffer {
 public:
  static constexpr int64_t kZoneBytes = int64_t{1} << 16;

  // 0 bytes: zones around nothing. Errors are DeviceBuffer's.
  static absl::StatusOr<GuardedBuffer> Allocate(int64_t bytes);

  GuardedBuffer() = default;

  // Aligned to 256 bytes.
  void* data() const { return static_cast<char*>(buffer_.data()) + kZoneBytes; }
  int64_t bytes() const { return bytes_; }
  bool allocated() const { return buffer_.data() != nullptr; }

  // Fills the first `used` bytes and both zones, of which the second begins
  // right behind these bytes, with kUntouched. Does not wait.
  absl::Status Prepare(int64_t used, cudaStream_t stream) const;
  // Says in words where the zones were written to since Prepare; empty if nowhere. Waits
  // for the stream.
  absl::StatusOr<std::string> Damage(int64_t used, cudaStream_t stream) const;

 private:
  DeviceBuffer buffer_;
  int64_t bytes_ = 0;
};

// Repeats `block` in the buffer from its beginning to its end: uploads it once,
// and copies it on the GPU. Blocks until it is there.
absl::Status FillWith(std::string_view block, DeviceBuffer* buffer);

// Copies bytes of the host to the GPU, in the order of the stream. Waits, so that they may
// end as it returns.
absl::Status Upload(std::string_view bytes, void* to, cudaStream_t stream);

// Free memory of the current device in bytes.
absl::StatusOr<int64_t> FreeDeviceMemory();

}  // namespace convtune::worker::device
