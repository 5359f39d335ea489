// A Shortcut does what one of convtune's own kernels does to memory, without
// running its instructions: for the host a thousand times as fast.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "tests/simgpu/ptx/interpreter.h"
#include "tests/simgpu/ptx/machine.h"
#include "tests/simgpu/runtime/work.h"

namespace convtune::simgpu::ptx {

struct Shortcut {
  std::string_view kernel;
  bool (*applies)(absl::Span<const uint64_t> arguments);
  // `arguments` as for Run. What is left after an error is not what Run leaves:
  // a kernel's error destroys the context, so nobody can look. Memory that the
  // kernel reads and writes at once is undefined on a GPU, and here too.
  cudaError_t (*run)(absl::Span<const uint64_t> arguments, Grid grid, const Machine& machine);
  // The memory whose size the kernel's time follows.
  Span (*traffic)(absl::Span<const uint64_t> arguments);
};

// Null if this kernel has none for these arguments.
const Shortcut* FindShortcut(std::string_view kernel, absl::Span<const uint64_t> arguments);

}  // namespace convtune::simgpu::ptx
