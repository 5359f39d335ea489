// Which algorithms of the legacy API compute a convolution: the tables of cuDNN's manual, as far as
// the worker meets them.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

#include "tests/simgpu/cudnn/convolution.h"

namespace convtune::simgpu {

// An entry of cudnnGet*_v7 and of cudnnFind*.
struct LegacyEntry {
  int algorithm = 0;
  cudnnMathType_t math_type = CUDNN_DEFAULT_MATH;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  int64_t workspace_bytes = 0;
  double us = 0;  // as measured
};

// CUDNN_STATUS_NOT_SUPPORTED, or the workspace that it needs.
cudnnStatus_t WorkspaceOf(const Convolution& convolution, int algorithm, int64_t* bytes);

// An entry for each algorithm with CUDNN_DEFAULT_MATH, and before it one with `math_type` where the
// algorithm can use tensor cores, or f32's can be kept from them.
std::vector<LegacyEntry> EntriesOf(const Convolution& convolution, cudnnMathType_t math_type);

bool IsDeterministic(Operation operation, int algorithm);

}  // namespace convtune::simgpu
