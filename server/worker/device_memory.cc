#include "server/worker/device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn_status.h"
#include "server/worker/tensor_data.h"

namespace convtune {
namespace {

// An odd number, so that rows of a tensor do not repeat each other.
constexpr int64_t kBlockElements = (int64_t{1} << 20) + 7;

}  // namespace

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(int64_t bytes) {
  DeviceBuffer buffer;
  if (bytes > 0) {
    RETURN_IF_ERROR(ToStatus(cudaMalloc(&buffer.data_, static_cast<size_t>(bytes)),
                             absl::StrCat("allocate ", bytes, " bytes")));
    buffer.bytes_ = bytes;
  }
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) {
    cudaFree(data_);
  }
}

absl::Status FillWithRandom(DataType type, bool rectified, uint64_t seed, DeviceBuffer* buffer) {
  const int64_t elements = std::min(buffer->bytes() / SizeOf(type), kBlockElements);
  const std::string block = RandomTensorBytes(type, elements, rectified, seed);
  const auto block_bytes = static_cast<int64_t>(block.size());
  for (int64_t at = 0; block_bytes > 0 && at < buffer->bytes(); at += block_bytes) {
    const int64_t size = std::min(block_bytes, buffer->bytes() - at);
    RETURN_IF_ERROR(ToStatus(cudaMemcpy(static_cast<char*>(buffer->data()) + at, block.data(),
                                        static_cast<size_t>(size), cudaMemcpyHostToDevice),
                             "upload a tensor"));
  }
  return ToStatus(cudaDeviceSynchronize(), "upload a tensor");
}

absl::StatusOr<int64_t> FreeDeviceMemory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "ask for free memory"));
  return static_cast<int64_t>(free_bytes);
}

}  // namespace convtune
