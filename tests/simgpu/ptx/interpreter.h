// Run runs a kernel, instruction by instruction.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/types/span.h"
#include "tests/simgpu/ptx/machine.h"
#include "tests/simgpu/ptx/module.h"

namespace convtune::simgpu::ptx {

// Blocks, and threads in each, along x.
struct Grid {
  uint32_t blocks = 1;
  uint32_t threads = 1;
};

struct RunEnd {
  int64_t ns = 0;  // when the last thread ended
  cudaError_t error = cudaSuccess;
};

// `arguments` has a value for each of the kernel's parameters. Threads run one
// after the other, and nothing of a thread is seen by those before it; each has
// a clock of its own, which begins at `start_ns`. Block i runs on SM i modulo
// their number; if no block runs on SM 0, those of SM 0 run on SM 1.
RunEnd Run(const Kernel& kernel, Grid grid, absl::Span<const uint64_t> arguments, int64_t start_ns,
           const Machine& machine);

}  // namespace convtune::simgpu::ptx
