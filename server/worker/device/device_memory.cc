#include "server/worker/device/device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::device {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(int64_t bytes) {
  DeviceBuffer buffer;
  if (bytes > 0) {
    void* data = nullptr;
    RETURN_IF_ERROR(cudnn::ToStatus(cudaMalloc(&data, static_cast<size_t>(bytes)),
                                    absl::StrCat("allocate ", bytes, " bytes")));
    buffer.data_.reset(data);
    buffer.bytes_ = bytes;
  }
  return buffer;
}

absl::StatusOr<GuardedBuffer> GuardedBuffer::Allocate(int64_t bytes) {
  GuardedBuffer guarded;
  ASSIGN_OR_RETURN(guarded.buffer_, DeviceBuffer::Allocate(bytes + 2 * kZoneBytes));
  guarded.bytes_ = bytes;
  return guarded;
}

absl::Status GuardedBuffer::Prepare(int64_t used, cudaStream_t stream) const {
  return cudnn::ToStatus(cudaMemsetAsync(buffer_.data(), kUntouched,
                                         static_cast<size_t>(used + 2 * kZoneBytes), stream),
                         "prepare a red zone");
}

absl::StatusOr<std::string> GuardedBuffer::Damage(int64_t used, cudaStream_t stream) const {
  std::string zone(static_cast<size_t>(kZoneBytes), '\0');
  std::vector<std::string> damages;
  for (const bool before : {true, false}) {
    const char* at = static_cast<const char*>(data()) + (before ? -kZoneBytes : used);
    RETURN_IF_ERROR(cudnn::ToStatus(
        cudaMemcpyAsync(zone.data(), at, zone.size(), cudaMemcpyDeviceToHost, stream),
        "read a red zone"));
    RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamSynchronize(stream), "read a red zone"));
    std::string damage = DescribeDamage(zone, before);
    if (!damage.empty()) {
      damages.push_back(std::move(damage));
    }
  }
  return absl::StrJoin(damages, ", ");
}

absl::Status FillWith(std::string_view block, DeviceBuffer* buffer) {
  if (block.empty() || buffer->bytes() == 0) return absl::OkStatus();
  char* const data = static_cast<char*>(buffer->data());
  const auto block_bytes = static_cast<int64_t>(block.size());
  RETURN_IF_ERROR(cudnn::ToStatus(
      cudaMemcpy(data, block.data(), static_cast<size_t>(std::min(block_bytes, buffer->bytes())),
                 cudaMemcpyHostToDevice),
      "upload a tensor"));
  // Each copy doubles what is there.
  for (int64_t filled = block_bytes; filled < buffer->bytes(); filled *= 2) {
    const auto bytes = static_cast<size_t>(std::min(filled, buffer->bytes() - filled));
    RETURN_IF_ERROR(cudnn::ToStatus(
        cudaMemcpy(data + filled, data, bytes, cudaMemcpyDeviceToDevice), "copy a tensor"));
  }
  return cudnn::ToStatus(cudaDeviceSynchronize(), "upload a tensor");
}

absl::Status Upload(std::string_view bytes, void* to, cudaStream_t stream) {
  RETURN_IF_ERROR(cudnn::ToStatus(
      cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream), "upload"));
  return cudnn::ToStatus(cudaStreamSynchronize(stream), "upload");
}

absl::StatusOr<int64_t> FreeDeviceMemory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(
      cudnn::ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "ask for free memory"));
  return static_cast<int64_t>(free_bytes);
}

std::string DescribeDamage(std::string_view zone, bool before) {
  size_t count = 0;
  size_t nearest = 0;
  for (size_t i = 0; i < zone.size(); ++i) {
    if (static_cast<unsigned char>(zone[i]) == kUntouched) continue;
    const size_t distance = before ? zone.size() - i : i;
    if (count == 0 || distance < nearest) nearest = distance;
    ++count;
  }
  if (count == 0) return "";
  return absl::StrCat(count, " bytes, from ", nearest, " bytes ",
                      before ? "before its beginning" : "behind its end");
}

}  // namespace convtune::worker::device
