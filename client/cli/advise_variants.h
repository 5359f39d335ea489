// The same convolution in other layouts, data types and batch sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/conv_problem.h"

namespace convtune {

struct Variant {
  ConvProblem problem;
  int64_t batch = 1;
  bool forbid_tf32 = false;  // f32 inputs, without tensor cores
  bool asked = false;        // the problem as it was given
};

// The problem in NCHW and NHWC, in its own data type and each of `data_types`,
// with each of `batches` (its own if empty); for f32 with and without TF32.
// Output, compute and intermediate types are the usual ones of the data type
// but for the problem as it was given. Ordered by batch, then layout, then data
// type; the problem as given is the first. INVALID_ARGUMENT if the problem has
// strides of its own. What the data type does not allow is left out.
absl::StatusOr<std::vector<Variant>> MakeVariants(const ConvProblem& problem,
                                                  const std::vector<DataType>& data_types,
                                                  const std::vector<int64_t>& batches);

// Multiplications and additions of the direct method: 2 N K P Q C/groups R S,
// whatever the operation.
double FloatingPointOperations(const ConvProblem& problem);

// What one row of `advise` shows of a variant. Figures are 0 where nothing was
// timed.
struct Advice {
  double time_us = 0;
  double speed_up = 0;  // per image, against the problem as given
  double tflops = 0;    // of FloatingPointOperations
  double gbytes = 0;    // GB/s, had every tensor moved once
};
Advice Advise(const Variant& variant, const v1::BatchGetResult& result, const Variant& asked,
              const v1::BatchGetResult& asked_result);

}  // namespace convtune
