// The simulated cudnnHandle_t: a token that the real library never sees.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

// What the linker calls a function of cuDNN's, and what calls of it come to: see ld's --wrap.
#define SIMGPU_HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace convtune::simgpu {

struct Handle {
  cudaStream_t stream = nullptr;
};

inline Handle* FromCudnn(cudnnHandle_t handle) { return reinterpret_cast<Handle*>(handle); }

}  // namespace convtune::simgpu
