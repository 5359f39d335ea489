// Puts convolutions on the simulated GPU, with what the script of faults has for them.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tests/simgpu/cudnn/program.h"
#include "tests/simgpu/faults/faults.h"

namespace convtune::simgpu {

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

// A Call is one execution's memory.
struct Call {
  std::shared_ptr<const Candidate> candidate;
  std::map<int64_t, void*> data;  // by id
  void* workspace = nullptr;
};

// A Library is one of cuDNN's, with a CUDA runtime of its own. Its last error is left by a launch
// that failed, and met by the next launch.
struct Library {
  cudaError_t last_error = cudaSuccess;
};

// As cudnnBackendExecute and the legacy API's executions. `loaded`: the candidate's code is loaded,
// which waits for the GPU if it is not.
cudnnStatus_t Execute(const Call& call, cudaStream_t stream, Library* library, bool* loaded);

// Runs it once and waits, as cudnnFind* does.
cudaError_t RunAndTime(const Call& call, cudaStream_t stream, double* us);

// The text of an error, for cudnnGetLastErrorString, and the status.
cudnnStatus_t Error(cudnnStatus_t status, std::string_view text);
std::string TakeErrorText();

[[noreturn]] void Refuse(std::string_view what);

}  // namespace convtune::simgpu
