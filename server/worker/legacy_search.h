// cudnnFind*.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/model/conv_problem.h"
#include "server/worker/legacy_convolution.h"
#include "server/worker/listing_sink.h"

namespace convtune {

// Runs cudnnFind* with the math types that make sense for the inputs and
// passes every entry to the sink, the refused ones with their reason. Needs a
// card. Errors are cuDNN's, when it refuses the search as a whole.
absl::Status ListLegacyAlgorithms(const ConvProblem& problem, LegacyConvolution* convolution,
                                  const ConvPointers& tensors, int64_t workspace_limit,
                                  ListingSink* sink);

}  // namespace convtune
