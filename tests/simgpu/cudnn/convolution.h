// A Convolution is the arithmetic of one convolution of tensors, on the CPU. It shares no code
// with the worker's reference, which it is there to be compared with.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "proto/model/enums.h"

namespace convtune::simgpu {

// A Tensor has five dimensions: N, C, depth, height, width. Strides count elements.
struct Tensor {
  DataType type = DataType::kF32;
  std::array<int64_t, 5> dims = {1, 1, 1, 1, 1};
  std::array<int64_t, 5> strides = {};

  // Elements from the first to behind the last in memory; more than Count() where there are gaps.
  int64_t Extent() const;
  int64_t Count() const;
  int64_t Bytes() const { return Extent() * SizeOf(type); }
  int64_t Offset(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) const {
    return n * strides[0] + c * strides[1] + d * strides[2] + h * strides[3] + w * strides[4];
  }
};

// The tensors have their names of the forward direction, whatever the operation.
struct Convolution {
  Operation operation = Operation::kFwd;
  Tensor x, w, y;
  std::array<int64_t, 3> pad = {};  // in front
  std::array<int64_t, 3> stride = {1, 1, 1};
  std::array<int64_t, 3> dilation = {1, 1, 1};
  int64_t groups = 1;
  DataType compute = DataType::kF32;  // that sums are asked for in; only the legacy API's is read
  bool flipped = false;               // CUDNN_CONVOLUTION, not CUDNN_CROSS_CORRELATION
  bool tf32 = false;                  // inputs are rounded to TF32 first

  const Tensor& Output() const;
  double MultiplyAdds() const;
};

// The output's values before they are rounded to its type, each at its offset. Of the three
// pointers that of the output is not read. T is double where sums have to be exact or f64's:
// see SumsInDouble; else float, in which products are added up. Two threads.
template <typename T>
std::vector<T> Convolve(const Convolution& convolution, const void* x, const void* w,
                        const void* y);
bool SumsInDouble(const Convolution& convolution);

}  // namespace convtune::simgpu
