// Elements of tensors: the values of their bytes, and the bytes of values.
#pragma once

#include <cstdint>

#include "proto/model/enums.h"

namespace convtune::simgpu {

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
