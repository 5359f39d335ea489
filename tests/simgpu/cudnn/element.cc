#include "tests/simgpu/cudnn/element.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace convtune::simgpu {
namespace {

// A floating-point format of at most 16 bits. E4M3 has no infinity, and one NaN.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  bool saturates;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t infinity() const { return ((1U << exponent_bits) - 1) << mantissa_bits; }
  uint32_t nan() const { return (1U << (exponent_bits + mantissa_bits)) - 1; }
  uint32_t largest() const { return has_infinity ? infinity() - 1 : nan() - 1; }
};

// Of the types that are no C++ type.
Format FormatOf(DataType type) {
  switch (type) {
    case DataType::kF16:
      return {5, 10, true, false};
    case DataType::kBF16:
      return {8, 7, true, false};
    case DataType::kE4M3:
      return {4, 3, false, true};
    default:
      return {5, 2, true, true};
  }
}

float DecodePattern(const Format& format, uint32_t bits) {
  const uint32_t magnitude = bits & format.nan();
  const float sign = magnitude == bits ? 1.0F : -1.0F;
  if (format.has_infinity && magnitude >= format.infinity()) {
    return magnitude == format.infinity() ? sign * std::numeric_limits<float>::infinity()
                                          : std::numeric_limits<float>::quiet_NaN();
  }
  if (!format.has_infinity && magnitude == format.nan()) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t fraction = magnitude & ((1U << format.mantissa_bits) - 1);
  const uint32_t whole = exponent == 0 ? fraction : fraction | (1U << format.mantissa_bits);
  return sign * std::ldexp(static_cast<float>(whole),
                           std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

uint32_t EncodePattern(const Format& format, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 31) << (format.exponent_bits + format.mantissa_bits);
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | format.nan();
  const int least_exponent = 1 - format.bias();
  if (magnitude < static_cast<uint32_t>(least_exponent + 127) << 23) {
    // Below the smallest normal number the steps are equal.
    return sign | static_cast<uint32_t>(std::nearbyint(
                      std::ldexp(std::abs(value), format.mantissa_bits - least_exponent)));
  }
  const int cut = 23 - format.mantissa_bits;
  magnitude += (1U << (cut - 1)) - 1 + ((magnitude >> cut) & 1);
  magnitude =
      (magnitude >> cut) - (static_cast<uint32_t>(127 - format.bias()) << format.mantissa_bits);
  if (magnitude > format.largest()) {
    magnitude = format.saturates ? format.largest() : format.infinity();
  }
  return sign | magnitude;
}

// The value of each pattern.
const std::vector<float>& TableOf(DataType type) {
  static const std::array<std::vector<float>, 9> tables = [] {
    std::array<std::vector<float>, 9> made;
    for (const DataType of : {DataType::kF16, DataType::kBF16, DataType::kE4M3, DataType::kE5M2}) {
      std::vector<float>& table = made[static_cast<size_t>(of)];
      table.resize(size_t{1} << (8 * SizeOf(of)));
      for (uint32_t i = 0; i < table.size(); ++i) table[i] = DecodePattern(FormatOf(of), i);
    }
    return made;
  }();
  return tables[static_cast<size_t>(type)];
}

template <typename Raw, typename T, typename Value>
void DecodeRaw(const char* from, int64_t step, int64_t count, T* to, int64_t to_step,
               const Value& value) {
  for (int64_t i = 0; i < count; ++i) {
    Raw raw;
    std::memcpy(&raw, from + i * step * static_cast<int64_t>(sizeof(Raw)), sizeof(Raw));
    to[i * to_step] = static_cast<T>(value(raw));
  }
}

template <typename Raw>
void EncodeRaw(Raw raw, char* to) {
  std::memcpy(to, &raw, sizeof(raw));
}

template <typename Int>
Int Saturate(double value) {
  return static_cast<Int>(std::clamp(std::nearbyint(value),
                                     static_cast<double>(std::numeric_limits<Int>::min()),
                                     static_cast<double>(std::numeric_limits<Int>::max())));
}

}  // namespace

template <typename T>
void DecodeElements(DataType type, const char* from, int64_t step, int64_t count, T* to,
                    int64_t to_step) {
  const auto same = [](auto raw) { return raw; };
  const auto look_up = [table = &TableOf(type)](auto bits) { return (*table)[bits]; };
  switch (type) {
    case DataType::kF64:
      return DecodeRaw<double>(from, step, count, to, to_step, same);
    case DataType::kF32:
      return DecodeRaw<float>(from, step, count, to, to_step, same);
    case DataType::kI32:
      return DecodeRaw<int32_t>(from, step, count, to, to_step, same);
    case DataType::kI8:
      return DecodeRaw<int8_t>(from, step, count, to, to_step, same);
    case DataType::kF16:
    case DataType::kBF16:
      return DecodeRaw<uint16_t>(from, step, count, to, to_step, look_up);
    case DataType::kE4M3:
    case DataType::kE5M2:
      return DecodeRaw<uint8_t>(from, step, count, to, to_step, look_up);
  }
}
template void DecodeElements(DataType, const char*, int64_t, int64_t, float*, int64_t);
template void DecodeElements(DataType, const char*, int64_t, int64_t, double*, int64_t);

double DecodeElement(DataType type, const char* from) {
  double value = 0;
  DecodeElements(type, from, 1, 1, &value, 1);
  return value;
}

void EncodeElement(DataType type, double value, char* to) {
  const auto narrow = static_cast<float>(value);
  switch (type) {
    case DataType::kF64:
      return EncodeRaw(value, to);
    case DataType::kF32:
      return EncodeRaw(narrow, to);
    case DataType::kI32:
      return EncodeRaw(Saturate<int32_t>(value), to);
    case DataType::kI8:
      return EncodeRaw(Saturate<int8_t>(value), to);
    case DataType::kF16:
    case DataType::kBF16:
      return EncodeRaw(static_cast<uint16_t>(EncodePattern(FormatOf(type), narrow)), to);
    case DataType::kE4M3:
    case DataType::kE5M2:
      return EncodeRaw(static_cast<uint8_t>(EncodePattern(FormatOf(type), narrow)), to);
  }
}

double RoundTo(DataType type, double value) {
  char bytes[8] = {};
  EncodeElement(type, value, bytes);
  return DecodeElement(type, bytes);
}

float RoundToTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return value;
  return std::bit_cast<float>((bits + 0xFFFU + ((bits >> 13) & 1)) & ~0x1FFFU);
}

}  // namespace convtune::simgpu
