// Makes the contents of the tensors that candidates run on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/model/enums.h"

namespace convtune::worker::verify {

// A floating-point format of 1 + exponent_bits + mantissa_bits bits.
struct FloatFormat {
  int exponent_bits = 0;
  int mantissa_bits = 0;
  bool has_infinity = true;  // false for e4m3, whose top exponent holds numbers
};

// That of a type; nullopt for integers.
std::optional<FloatFormat> FormatOf(DataType type);

// The nearest value of a format of 16 bits at most, ties to even, with gradual underflow; beyond
// the largest finite value it is that value.
uint16_t EncodeSmallFloat(float value, const FloatFormat& format);

// The value of such a pattern; NaN and infinity are those of double.
double DecodeSmallFloat(uint16_t bits, const FloatFormat& format);

// The value of the element of `type` whose bytes begin at `bytes`.
double DecodeElement(DataType type, const char* bytes);

// The values of the elements that lie one behind the other in `bytes`.
std::vector<double> DecodeElements(DataType type, std::string_view bytes);

// The largest finite value of a type.
double LargestOf(DataType type);

// The bits of an element that are all set if it is NaN or infinite; 0 for
// integers.
uint64_t NonfiniteMask(DataType type);

// The values of random tensors. kNormal: normally distributed. kRectified: normal, with
// zeros for those below zero, as after a ReLU. kMasked: normal, with zeros in half of
// the elements, as gradients that come back through a ReLU. kSmallIntegers: from -2 to 2.
enum class TensorContent { kNormal, kRectified, kMasked, kSmallIntegers };

// The largest standard deviation of integers, for where no sum leaves its type: four of them are
// the range of i8.
inline constexpr double kWideIntegers = 32;

// `count` elements of `type` in memory order; integers are rounded from normal
// values of the standard deviation `integer_scale`. The same arguments give the
// same bytes.
std::string RandomTensorBytes(DataType type, int64_t count, TensorContent content, uint64_t seed,
                              double integer_scale = kWideIntegers);

// The standard deviation of normal values at which the mean of the squares of the integers that
// they are rounded to is `mean_square`; kWideIntegers at most.
double IntegerScaleOf(double mean_square);

}  // namespace convtune::worker::verify
