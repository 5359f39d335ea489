// Memory of a card.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model/enums.h"

namespace convtune {

// Owns device memory of the current device. Move-only. Memory is aligned to
// 256 bytes at least.
class DeviceBuffer {
 public:
  // RESOURCE_EXHAUSTED if the card has no more. 0 bytes: a null buffer.
  static absl::StatusOr<DeviceBuffer> Allocate(int64_t bytes);

  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Fills the buffer with what RandomTensorBytes gives; a block of it is
// repeated where the buffer is large. Blocks until it is there.
absl::Status FillWithRandom(DataType type, bool rectified, uint64_t seed, DeviceBuffer* buffer);

// Free memory of the current device in bytes.
absl::StatusOr<int64_t> FreeDeviceMemory();

}  // namespace convtune
