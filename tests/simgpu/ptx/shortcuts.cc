#include "tests/simgpu/ptx/shortcuts.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

namespace convtune::simgpu::ptx {
namespace {

using Arguments = absl::Span<const uint64_t>;

template <typename T>
T* Pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// The bytes of that many elements: more than there can be, where 64 bits do not hold them.
uint64_t Bytes(uint64_t count, uint64_t size) {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(count, size, &bytes) ? UINT64_MAX : bytes;
}

Span MakeSpan(uint64_t address, uint64_t bytes) {
  return {Pointer<const void>(address), static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX))};
}

bool Always(Arguments) { return true; }

// convtune_sweep(p_data, p_count, p_sink). Its loads change nothing; they are
// left out, and so is the store of a thread whose words happen to have the one
// xor that it is looked for, 1 in 2^32.
cudaError_t Sweep(Arguments arguments, Grid, const Machine& machine) {
  const auto [data, count] = std::pair{arguments[0], arguments[1]};
  return count == 0 ? cudaSuccess : CheckAccess(machine, data, Bytes(count, 16), 16);
}

Span SweepTraffic(Arguments arguments) { return MakeSpan(arguments[0], Bytes(arguments[1], 16)); }

// convtune_gather(p_data, p_offsets, p_count, p_size, p_out)
cudaError_t Gather(Arguments arguments, Grid grid, const Machine& machine) {
  const uint64_t count = std::min<uint64_t>(arguments[2], uint64_t{grid.blocks} * grid.threads);
  const uint64_t size = arguments[3];
  const uint64_t bytes = std::max<uint64_t>(size, 1);  // the kernel's loop looks at its end
  if (count == 0) return cudaSuccess;
  cudaError_t error = CheckAccess(machine, arguments[1], count * 8, 8);
  for (uint64_t i = 0; i < count && error == cudaSuccess; ++i) {
    const uint64_t from = arguments[0] + Pointer<const uint64_t>(arguments[1])[i];
    const uint64_t to = arguments[4] + i * size;
    error = CheckAccess(machine, from, bytes, 1);
    if (error == cudaSuccess) error = CheckAccess(machine, to, bytes, 1);
    if (error == cudaSuccess) std::memmove(Pointer<void>(to), Pointer<const void>(from), bytes);
  }
  return error;
}

Span GatherTraffic(Arguments arguments) {
  return MakeSpan(arguments[4], Bytes(arguments[2], arguments[3]));
}

bool HasScanSize(Arguments arguments) {
  const uint64_t size = arguments[2];
  return size == 1 || size == 2 || size == 4 || size == 8;
}

template <typename T>
uint64_t CountMasked(uint64_t data, uint64_t count, uint64_t mask) {
  // A wider mask has bits that no element has.
  if (mask > static_cast<T>(-1)) return 0;
  const auto narrow = static_cast<T>(mask);
  const T* const values = Pointer<const T>(data);
  uint64_t found = 0;
  for (uint64_t i = 0; i < count; ++i) found += (values[i] & narrow) == narrow;
  return found;
}

// convtune_scan(p_data, p_count, p_size, p_mask, p_counter)
cudaError_t Scan(Arguments arguments, Grid, const Machine& machine) {
  const auto [data, count, size] = std::tuple{arguments[0], arguments[1], arguments[2]};
  const uint64_t mask = arguments[3];
  if (count == 0) return cudaSuccess;
  cudaError_t error = CheckAccess(machine, data, Bytes(count, size), size);
  if (error != cudaSuccess) return error;
  const uint64_t found = size == 8   ? CountMasked<uint64_t>(data, count, mask)
                         : size == 4 ? CountMasked<uint32_t>(data, count, mask)
                         : size == 2 ? CountMasked<uint16_t>(data, count, mask)
                                     : CountMasked<uint8_t>(data, count, mask);
  if (found == 0) return cudaSuccess;
  error = CheckAccess(machine, arguments[4], 8, 8);
  if (error == cudaSuccess) *Pointer<uint64_t>(arguments[4]) += found;
  return error;
}

Span ScanTraffic(Arguments arguments) {
  return MakeSpan(arguments[0], Bytes(arguments[1], arguments[2]));
}

constexpr Shortcut kShortcuts[] = {
    {"convtune_sweep", Always, Sweep, SweepTraffic},
    {"convtune_gather", Always, Gather, GatherTraffic},
    {"convtune_scan", HasScanSize, Scan, ScanTraffic},
};

}  // namespace

const Shortcut* FindShortcut(std::string_view kernel, Arguments arguments) {
  for (const Shortcut& shortcut : kShortcuts) {
    if (shortcut.kernel == kernel && shortcut.applies(arguments)) return &shortcut;
  }
  return nullptr;
}

}  // namespace convtune::simgpu::ptx
