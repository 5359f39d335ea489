// A convolution as libconvtune's answers name it, ready to be handed to cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <vector>

namespace example {

enum class Operation { kFwd, kBwdData, kBwdFilter };
// Operations on the convolution's output: adding a tensor of its shape, adding a
// bias for each channel, cutting off what is below zero.
enum class Epilogue { kAdd, kBias, kRelu };

struct Tensor {
  std::vector<std::int64_t> dims, strides;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  // Of the memory that it spans, whatever lies between its elements.
  std::int64_t bytes() const;
};

struct Convolution {
  Operation operation = Operation::kFwd;
  Tensor x, w, y;
  std::vector<std::int64_t> pad_low, pad_high, stride, dilation;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  std::int64_t alignment = 16;
  std::vector<Epilogue> epilogue;                   // in their order
  cudnnDataType_t intermediate = CUDNN_DATA_FLOAT;  // between them
};

// The tensor that kBias adds: y's type, one element for each of y's channels.
Tensor BiasOf(const Convolution& convolution);

// Reads a canonical text, as Result::problem is one. Throws std::runtime_error
// for what this example does not do: a part of the GPU's SMs.
Convolution Parse(const std::string& canonical);

}  // namespace example
