// Computes some elements of a convolution's output in double precision. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/graph_builder.h"

namespace convtune::worker::verify {

// The values of a tensor in memory order; they repeat where memory is longer.
using TensorValues = std::vector<double>;

// Inputs of a problem, as far as it reads them. x, w and y name the forward tensors, so y is the
// gradient that the backward operations read. The residual is laid out as y; the bias has one value
// for each output channel.
using ReferenceInputs = std::map<cudnn::TensorRole, TensorValues>;

struct ReferenceElement {
  int64_t offset = 0;    // in the output's memory, in elements
  double value = 0;      // epilogue included
  double magnitude = 0;  // sum of the absolute values of its products
};

// The dimensions of what the problem's operation writes.
const std::vector<int64_t>& OutputDims(const ConvProblem& problem);

// Elements of the output to compare: as many as cost about `max_products`
// multiplications, 2048 at most (all of a smaller output); where these are fewer
// than 8, up to 8 for eight times the cost. None if that is not enough for one.
// `max_products` is below 2^60. Chosen at random,
// the same for the same seed; of each spatial position, a quarter of the
// coordinates lie at an end of their dimension, where padding is. Coordinates
// in the order of the dimensions.
std::vector<std::vector<int64_t>> ChooseElements(const ConvProblem& problem, int64_t max_products,
                                                 uint64_t seed);

// The output at `coordinates`, rounded nowhere. Products are summed in double
// precision (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
// section 4.2: an error of n times 1.1e-16 at most of the magnitude).
// REQUIRES: inputs that the problem reads are there.
ReferenceElement ComputeElement(const ConvProblem& problem, const ReferenceInputs& inputs,
                                const std::vector<int64_t>& coordinates);

}  // namespace convtune::worker::verify
