// Puts convolutions on the simulated GPU, with what the script of faults has for them.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tests/simgpu/cudnn/program.h"
#include "tests/simgpu/faults/faults.h"

// Of a function that calls of cuDNN come to (see --wrap of ld). The real one, which a shared
// library has, cannot be hidden.
#define SIMGPU_HIDDEN extern "C" __attribute__((visibility("hidden")))

namespace convtune::simgpu {

// The simulated cudnnHandle_t: a token that the real library never sees.
struct Handle {
  cudaStream_t stream = nullptr;
};
inline Handle* FromCudnn(cudnnHandle_t handle) { return reinterpret_cast<Handle*>(handle); }

// A Candidate is one way to compute a program: a plan, or an algorithm of the legacy API.
struct Candidate {
  Candidate(Program program, Site site, uint32_t numerical_notes, int64_t workspace_bytes);

  Program program;  // tensor cores round f32 to TF32
  std::string text;
  Site site;
  std::string engine, config;  // as keys of the cost model
  uint32_t numerical_notes = 0;
  int64_t workspace_bytes = 0;
  double slowness = 1;
};

// A Plan is a candidate with its code. A graph that holds it when the plan goes has none any more.
struct Plan {
  std::shared_ptr<const Candidate> candidate;
  bool loaded = false;
};

// A Call is one execution's memory.
struct Call {
  std::map<int64_t, void*> data;  // by id
  void* workspace = nullptr;
};

// A Library is one of cuDNN's, with a CUDA runtime of its own. Its last error is left by a launch
// that failed, and met by the next launch.
struct Library {
  cudaError_t last_error = cudaSuccess;
};

// As cudnnBackendExecute and the legacy API's executions. Code that is not loaded yet is loaded,
// which waits for the GPU.
cudnnStatus_t Execute(Plan* plan, const Call& call, cudaStream_t stream, Library* library);

// Runs it once and waits, as cudnnFind* does. The output is left as anything.
cudnnStatus_t RunAndTime(const Plan& plan, const Call& call, cudaStream_t stream, Library* library,
                         double* us);

// The text of an error, for cudnnGetLastErrorString of this thread, and the status.
cudnnStatus_t Error(cudnnStatus_t status, std::string_view text);
std::string TakeErrorText();

// Of what cannot fail.
void Expect(cudnnStatus_t status, const char* what);

}  // namespace convtune::simgpu
