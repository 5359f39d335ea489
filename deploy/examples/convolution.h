// A convolution as libconvtune's answers name it, ready to be handed to cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <vector>

namespace example {

enum class Operation { kFwd, kBwdData, kBwdFilter };

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
};

// Reads a canonical text, as Result::problem is one. Throws std::runtime_error
// for what this example does not do: epilogues and a part of the GPU's SMs.
Convolution Parse(const std::string& canonical);

}  // namespace example
