#include "tests/simgpu/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace convtune::simgpu {
namespace {

constexpr int64_t kAlignment = 256;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [data, block] : blocks_) munmap(block.mapping, block.mapping_bytes);
}

cudaError_t DeviceMemory::Allocate(int64_t bytes, void** data, bool mapped) {
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  const int64_t used = mapped ? 0 : RoundUp(bytes, kAlignment);
  // A size_t of more than 2^63 is negative here.
  if (bytes < 0 || used > free_bytes() - kHeldBytes) return cudaErrorMemoryAllocation;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t inner = RoundUp(RoundUp(bytes, kAlignment) + kAlignment, page);
  Block block;
  block.bytes = bytes;
  block.mapping_bytes = inner + 2 * page;
  block.mapped = mapped;
  block.mapping = mmap(nullptr, block.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block.mapping == MAP_FAILED) return cudaErrorMemoryAllocation;
  char* const begin = static_cast<char*>(block.mapping) + page;
  if (mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(block.mapping, block.mapping_bytes);
    return cudaErrorMemoryAllocation;
  }
  std::memset(begin, kPoison, inner);
  char* aligned = begin + inner - RoundUp(bytes, kAlignment);
  if (reinterpret_cast<uintptr_t>(aligned) % (2 * kAlignment) == 0) aligned -= kAlignment;
  blocks_[aligned] = block;
  used_bytes_ += used;
  *data = aligned;
  return cudaSuccess;
}

cudaError_t DeviceMemory::Free(void* data, bool mapped) {
  if (data == nullptr) return cudaSuccess;
  const auto found = blocks_.find(static_cast<const char*>(data));
  if (found == blocks_.end() || found->second.mapped != mapped) return cudaErrorInvalidValue;
  const Block block = found->second;
  mmap(block.mapping, block.mapping_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (!mapped) used_bytes_ -= RoundUp(block.bytes, kAlignment);
  blocks_.erase(found);
  return cudaSuccess;
}

int64_t DeviceMemory::BytesAt(const void* data) const {
  const auto found = blocks_.find(static_cast<const char*>(data));
  return found == blocks_.end() ? 0 : found->second.bytes;
}

bool DeviceMemory::Contains(const void* data, int64_t bytes) const {
  const char* const begin = static_cast<const char*>(data);
  auto found = blocks_.upper_bound(begin);
  if (found == blocks_.begin()) return false;
  --found;
  return bytes >= 0 && begin + bytes <= found->first + found->second.bytes;
}

bool DeviceMemory::IsMapped(const void* data) const {
  auto found = blocks_.upper_bound(static_cast<const char*>(data));
  if (found == blocks_.begin()) return false;
  --found;
  return found->second.mapped && Contains(data, 0);
}

}  // namespace convtune::simgpu
