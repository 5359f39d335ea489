#include "server/worker/tensor_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace convtune {
namespace {

constexpr float kI8Scale = 32.0F;

template <typename T>
void Put(T value, int64_t place, std::string* bytes) {
  std::memcpy(bytes->data() + static_cast<size_t>(place) * sizeof(T), &value, sizeof(T));
}

void PutElement(DataType type, float value, int64_t place, std::string* bytes) {
  switch (type) {
    case DataType::kF64:
      Put(static_cast<double>(value), place, bytes);
      break;
    case DataType::kF32:
      Put(value, place, bytes);
      break;
    case DataType::kF16:
      Put(EncodeSmallFloat(value, 5, 10, true), place, bytes);
      break;
    case DataType::kBF16:
      Put(EncodeSmallFloat(value, 8, 7, true), place, bytes);
      break;
    case DataType::kE4M3:
      Put(static_cast<uint8_t>(EncodeSmallFloat(value, 4, 3, false)), place, bytes);
      break;
    case DataType::kE5M2:
      Put(static_cast<uint8_t>(EncodeSmallFloat(value, 5, 2, true)), place, bytes);
      break;
    case DataType::kI8:
      Put(static_cast<int8_t>(std::clamp(std::nearbyint(value * kI8Scale), -127.0F, 127.0F)), place,
          bytes);
      break;
    case DataType::kI32:
      Put(static_cast<int32_t>(std::nearbyint(value * kI8Scale)), place, bytes);
      break;
  }
}

}  // namespace

uint16_t EncodeSmallFloat(float value, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top_exponent = (1 << exponent_bits) - 1;
  const uint32_t mantissa_size = 1U << mantissa_bits;
  // Largest finite pattern: below infinity, or (e4m3) below the one NaN.
  const uint32_t largest = has_infinity
                               ? static_cast<uint32_t>(top_exponent) * mantissa_size - 1
                               : static_cast<uint32_t>(top_exponent + 1) * mantissa_size - 2;
  const uint32_t sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0U;
  const double magnitude = std::abs(static_cast<double>(value));
  if (magnitude == 0) {
    return static_cast<uint16_t>(sign);
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude is in [2^(exponent-1), 2^exponent)
  const int biased = std::max(exponent - 1 + bias, 1);
  // In units of the last place; a carry runs into the exponent by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits + bias - biased));
  const double pattern = units + static_cast<double>(biased - 1) * mantissa_size;
  return static_cast<uint16_t>(
      sign | static_cast<uint32_t>(std::min(pattern, static_cast<double>(largest))));
}

std::string RandomTensorBytes(DataType type, int64_t count, bool rectified, uint64_t seed) {
  std::string bytes(static_cast<size_t>(count * SizeOf(type)), '\0');
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    PutElement(type, rectified ? std::max(value, 0.0F) : value, i, &bytes);
  }
  return bytes;
}

}  // namespace convtune
