#include "server/worker/verify/tensor_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <utility>

namespace convtune::worker::verify {
namespace {

template <typename T>
T Get(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

void PutElement(DataType type, float value, float integer_scale, int64_t element,
                std::string* bytes) {
  const auto put = [&](auto pattern) {
    std::memcpy(bytes->data() + static_cast<size_t>(element) * sizeof(pattern), &pattern,
                sizeof(pattern));
  };
  switch (type) {
    case DataType::kF64:
      return put(static_cast<double>(value));
    case DataType::kF32:
      return put(value);
    case DataType::kI8:
      return put(
          static_cast<int8_t>(std::clamp(std::nearbyint(value * integer_scale), -127.0F, 127.0F)));
    case DataType::kI32:
      return put(static_cast<int32_t>(std::nearbyint(value * integer_scale)));
    default:
      break;
  }
  const uint16_t pattern = EncodeSmallFloat(value, *FormatOf(type));
  if (SizeOf(type) == sizeof(pattern)) return put(pattern);
  put(static_cast<uint8_t>(pattern));
}

}  // namespace

std::optional<FloatFormat> FormatOf(DataType type) {
  static constexpr std::pair<DataType, FloatFormat> kFormats[] = {
      {DataType::kF64, {11, 52}}, {DataType::kF32, {8, 23}},        {DataType::kF16, {5, 10}},
      {DataType::kBF16, {8, 7}},  {DataType::kE4M3, {4, 3, false}}, {DataType::kE5M2, {5, 2}}};
  const auto* const found =
      std::ranges::find(kFormats, type, &std::pair<DataType, FloatFormat>::first);
  return found == std::end(kFormats) ? std::nullopt : std::make_optional(found->second);
}

uint16_t EncodeSmallFloat(float value, const FloatFormat& format) {
  const auto [exponent_bits, mantissa_bits, has_infinity] = format;
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
  // The number of units in the last place; a carry runs into the exponent by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits + bias - biased));
  const double pattern = units + static_cast<double>(biased - 1) * mantissa_size;
  return static_cast<uint16_t>(
      sign | static_cast<uint32_t>(std::min(pattern, static_cast<double>(largest))));
}

double DecodeSmallFloat(uint16_t bits, const FloatFormat& format) {
  const auto [exponent_bits, mantissa_bits, has_infinity] = format;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top_exponent = (1 << exponent_bits) - 1;
  const uint32_t mantissa_size = 1U << mantissa_bits;
  const uint32_t mantissa = bits & (mantissa_size - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & top_exponent;
  const double sign = (bits >> (exponent_bits + mantissa_bits) & 1U) != 0 ? -1.0 : 1.0;
  if (exponent == top_exponent && has_infinity) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == top_exponent && mantissa == mantissa_size - 1) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const uint32_t units = exponent == 0 ? mantissa : mantissa + mantissa_size;
  return sign * std::ldexp(units, std::max(exponent, 1) - bias - mantissa_bits);
}

double DecodeElement(DataType type, const char* bytes) {
  switch (type) {
    case DataType::kF64:
      return Get<double>(bytes);
    case DataType::kF32:
      return static_cast<double>(Get<float>(bytes));
    case DataType::kI8:
      return Get<int8_t>(bytes);
    case DataType::kI32:
      return Get<int32_t>(bytes);
    default:
      break;
  }
  return DecodeSmallFloat(SizeOf(type) == 1 ? Get<uint8_t>(bytes) : Get<uint16_t>(bytes),
                          *FormatOf(type));
}

std::vector<double> DecodeElements(DataType type, std::string_view bytes) {
  const auto size = static_cast<size_t>(SizeOf(type));
  std::vector<double> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = DecodeElement(type, bytes.data() + i * size);
  }
  return values;
}

double LargestOf(DataType type) {
  const std::optional<FloatFormat> format = FormatOf(type);
  if (!format) {
    return type == DataType::kI8 ? std::numeric_limits<int8_t>::max()
                                 : std::numeric_limits<int32_t>::max();
  }
  // One or, below the one NaN of e4m3, two units in the last place below a power of two.
  const int bias = (1 << (format->exponent_bits - 1)) - 1;
  return std::ldexp(2 - std::ldexp(format->has_infinity ? 1 : 2, -format->mantissa_bits),
                    format->has_infinity ? bias : bias + 1);
}

uint64_t NonfiniteMask(DataType type) {
  const std::optional<FloatFormat> format = FormatOf(type);
  if (!format) return 0;
  const uint64_t mantissa = (uint64_t{1} << format->mantissa_bits) - 1;
  const uint64_t exponent = ((uint64_t{1} << format->exponent_bits) - 1) << format->mantissa_bits;
  return format->has_infinity ? exponent : exponent | mantissa;
}

std::string RandomTensorBytes(DataType type, int64_t count, TensorContent content, uint64_t seed,
                              double integer_scale) {
  std::string bytes(static_cast<size_t>(count * SizeOf(type)), '\0');
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    if (content == TensorContent::kSmallIntegers) {
      PutElement(type, static_cast<float>(random() % 5) - 2.0F, /*integer_scale=*/1, i, &bytes);
      continue;
    }
    float value = normal(random);
    if (content == TensorContent::kRectified) {
      value = std::max(value, 0.0F);
    } else if (content == TensorContent::kMasked && (random() >> 63U) != 0) {
      value = 0.0F;
    }
    PutElement(type, value, static_cast<float>(integer_scale), i, &bytes);
  }
  return bytes;
}

double IntegerScaleOf(double mean_square) {
  // E[k^2] is the sum of (2 k - 1) P(|value| > k - 1/2) over k from 1 on.
  const auto mean_square_at = [](double scale) {
    double sum = 0;
    for (int k = 1; k <= std::numeric_limits<int8_t>::max(); ++k) {
      sum += (2 * k - 1) * std::erfc((k - 0.5) / (scale * std::sqrt(2.0)));
    }
    return sum;
  };
  double low = 0.05;
  double high = kWideIntegers;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (mean_square_at(middle) < mean_square ? low : high) = middle;
  }
  return high;
}

}  // namespace convtune::worker::verify
