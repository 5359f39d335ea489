// Checks that the output a candidate wrote on the GPU is right.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/device/kernels.h"
#include "server/worker/verify/comparison.h"
#include "server/worker/verify/reference.h"

namespace convtune::worker::verify {

// The output of a problem on a GPU, and the reference for some of its
// elements. Not thread-safe.
class OutputCheck {
 public:
  // Bytes of GPU memory that it needs at most.
  static constexpr int64_t kBytes = 2048 * 16 + 512;

  // `reference` may be empty: then nothing is compared. `output_elements`: those
  // of the output's memory, gaps of strides included. `kernels` outlives it.
  static absl::StatusOr<OutputCheck> Create(const ConvProblem& problem,
                                            std::vector<ReferenceElement> reference,
                                            int64_t output_elements, device::Kernels* kernels,
                                            cudaStream_t stream);

  // Looks at what lies at `output`. Waits for the stream.
  absl::StatusOr<Comparison> Look(const void* output);

 private:
  OutputCheck(DataType type, device::Kernels* kernels, cudaStream_t stream)
      : type_(type), kernels_(kernels), stream_(stream) {}

  DataType type_;
  device::Kernels* kernels_;
  cudaStream_t stream_;
  std::vector<ReferenceElement> reference_;
  // All elements of the output, if it has no gaps and its type has NaN or infinity; else 0.
  int64_t scanned_elements_ = 0;
  device::DeviceBuffer offsets_;
  device::DeviceBuffer gathered_;
  device::DeviceBuffer counter_;
};

}  // namespace convtune::worker::verify
