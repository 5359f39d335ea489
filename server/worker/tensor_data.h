// Contents of the tensors that candidates are run on.
#pragma once

#include <cstdint>
#include <string>

#include "proto/model/enums.h"

namespace convtune {

// The nearest value of a floating-point format of 1 + exponent_bits +
// mantissa_bits bits (at most 16), ties to even, with gradual underflow;
// beyond the largest finite value of e4m3 or IEEE form it is that value.
// `has_infinity`: false for e4m3, whose top exponent holds numbers.
uint16_t EncodeSmallFloat(float value, int exponent_bits, int mantissa_bits, bool has_infinity);

// `count` elements of `type` in memory order: random normal values, those
// below zero cut to zero if `rectified`, as after a ReLU. Integers are scaled
// to use their range. The same arguments give the same bytes.
std::string RandomTensorBytes(DataType type, int64_t count, bool rectified, uint64_t seed);

}  // namespace convtune
