// An OutputCheck compares the output that a candidate wrote on the GPU with the reference.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/enums.h"
#include "proto/model/problem/conv_problem.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/device/kernels.h"
#include "server/worker/verify/reference.h"

namespace convtune::worker::verify {

struct Comparison {
  // Largest difference from the reference, in units of its largest value;
  // nullopt if nothing could be compared. An element that is not finite has
  // the largest difference there is: error is infinite.
  std::optional<double> error;
  // Largest magnitude of the reference, in the same units.
  double magnitude = 0;
  // True if the type is wide enough for the reference with room to spare, so
  // that no element has a reason not to be finite.
  bool must_be_finite = false;
  int elements = 0;  // that were compared
  // Elements of the whole output that are not finite, where they must be; see OutputCheck.
  int64_t nonfinite = 0;
};

// Compares elements of type `type`, one behind the other in `bytes` in the
// order of the reference. Integers saturate at the ends of their range, so
// references beyond are cut to it; elements whose reference is beyond half of
// the range of a floating-point type are left out, since cuDNN says nowhere what
// becomes of those that leave it. REQUIRES: bytes has SizeOf(type) for each element.
Comparison CompareElements(const std::vector<ReferenceElement>& reference, DataType type,
                           std::string_view bytes);

// Says why a second run did not compute the same as the first, as "its error is 0.5,
// and was 0.001"; empty if it did. It may have added up in another order: it has
// to have as many elements that are not finite, and an error of at most the
// largest of twice that of the first (8 times, where fewer than 64 elements were
// compared, since the largest of few varies), twice the rounding of `type`,
// 2^-20 of the magnitude (16 roundings of an f32 sum at its largest) and 1e-6.
std::string Disagreement(DataType type, const Comparison& first, const Comparison& second);

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
