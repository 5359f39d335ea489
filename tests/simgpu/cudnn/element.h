// Elements of tensors: the values of their bytes, and the bytes of values.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string_view>

#include "proto/model/enums.h"

namespace convtune::simgpu {

struct CudnnType {
  DataType type;
  cudnnDataType_t number;
  std::string_view name;  // in plans
};
inline constexpr CudnnType kCudnnTypes[] = {
    {DataType::kF64, CUDNN_DATA_DOUBLE, "CUDNN_DATA_DOUBLE"},
    {DataType::kF32, CUDNN_DATA_FLOAT, "CUDNN_DATA_FLOAT"},
    {DataType::kF16, CUDNN_DATA_HALF, "CUDNN_DATA_HALF"},
    {DataType::kBF16, CUDNN_DATA_BFLOAT16, "CUDNN_DATA_BFLOAT16"},
    {DataType::kI8, CUDNN_DATA_INT8, "CUDNN_DATA_INT8"},
    {DataType::kI32, CUDNN_DATA_INT32, "CUDNN_DATA_INT32"},
    {DataType::kE4M3, CUDNN_DATA_FP8_E4M3, "CUDNN_DATA_FP8_E4M3"},
    {DataType::kE5M2, CUDNN_DATA_FP8_E5M2, "CUDNN_DATA_FP8_E5M2"}};

// The values of `count` elements of `type`, the first at `from`, `step` elements apart, into
// `to`, `to_step` apart. REQUIRES: T holds each of the type's values: double, or float for
// anything but f64 and i32.
template <typename T>
void DecodeElements(DataType type, const char* from, int64_t step, int64_t count, T* to,
                    int64_t to_step);
double DecodeElement(DataType type, const char* from);

// The nearest value of `type`, ties to even. Integers and fp8 saturate, as cuDNN's do; others
// become infinite.
void EncodeElement(DataType type, double value, char* to);
// The value that EncodeElement leaves.
double RoundTo(DataType type, double value);

// The nearest value of TF32: 10 bits behind the point.
float RoundToTf32(float value);

}  // namespace convtune::simgpu
