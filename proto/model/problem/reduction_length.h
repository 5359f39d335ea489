// The length of a convolution's reduction: how many products each output adds up.
#pragma once

#include <cstdint>

#include "proto/model/problem/conv_problem.h"

namespace convtune {

// Products of the element of the output that has most of them, those with
// padding included: C/groups times the filter's size for fwd, K/groups times it
// for bwd_data, all places of all images for bwd_filter.
int64_t ProductsPerElement(const ConvProblem& problem);

// Multiply-adds of the direct method, those with padding included.
double MultiplyAdds(const ConvProblem& problem);

}  // namespace convtune
