// Work is what a stream of the simulated GPU runs: a kernel, a copy, an event.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace convtune::simgpu {

// A Span is memory of the simulated GPU.
struct Span {
  const void* data = nullptr;
  int64_t bytes = 0;
};

// How a piece of work came to run.
struct WorkStart {
  int64_t ns = 0;       // by the GPU's clock, see Gpu::NowNs
  bool replay = false;  // as part of a graph
};

// How a piece of work ended. An error other than cudaSuccess destroys the context.
struct WorkEnd {
  int64_t ns = 0;  // not before its start
  cudaError_t error = cudaSuccess;
  bool by_host = false;  // the host released it
};

// Work may run more than once: a captured graph runs it with the arguments that
// it was captured with. `run` does what the work does to memory; it checks all
// memory that it touches with DeviceMemory, as the GPU's MMU would.
struct Work {
  std::function<WorkEnd(const WorkStart&)> run;
  // The host may release it later: it must not run before somebody waits for it.
  bool waits_for_host = false;
};

using WorkPtr = std::shared_ptr<const Work>;

}  // namespace convtune::simgpu
