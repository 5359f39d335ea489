// Forms are other ways to write a convolution of a model, with the same result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::commands::lint {

// Value type.
struct Form {
  std::string how;      // "with 3 input channels padded to 8"
  ConvProblem problem;  // in that form
  double work = 1;      // its arithmetic as a multiple of the convolution's
};

// NCHW for NHWC and the other way round; nullopt for strides of its own.
std::optional<ConvProblem> OtherLayout(const ConvProblem& problem);

// Forms that may have candidates on tensor cores, the one with the least
// arithmetic first: groups merged until a group's channels are a multiple of 8
// (16 for 8-bit types), with zeros in the filter where groups met; channels
// padded with zeros to such a multiple; f16 for f32; each of these in NHWC too if
// it is NCHW; the other layout. None has more than 8 times the arithmetic. Empty if it
// is f64, or has strides of its own.
std::vector<Form> TensorCoreForms(const ConvProblem& problem);

// A convolution that is one matrix product. Value type.
struct MatrixProduct {
  std::string why;  // "its kernel is as large as its stride"
  int64_t m = 0, n = 0, k = 0;
  std::string linear;  // the same in PyTorch; x, w and b are the convolution's
};

// Of a convolution without groups and padding whose windows do not overlap and
// are more than a pixel, or that reads all of its input at once; nullopt of any
// other, a 1x1 convolution over many pixels and the backward operations among them.
std::optional<MatrixProduct> AsMatrixProduct(const ConvProblem& problem);

}  // namespace convtune::cli::commands::lint
