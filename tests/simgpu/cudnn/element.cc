#include "tests/simgpu/cudnn/element.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace convtune::simgpu {
namespace {

// By NVIDIA's own conversions.
float ValueOf(DataType type, uint16_t pattern) {
  if (type == DataType::kF16) return __half2float(__ushort_as_half(pattern));
  if (type == DataType::kBF16) return __bfloat162float(__ushort_as_bfloat16(pattern));
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(
      static_cast<uint8_t>(pattern), type == DataType::kE4M3 ? __NV_E4M3 : __NV_E5M2)));
}

// The value of each pattern.
const std::vector<float>& TableOf(DataType type) {
  static const std::array<std::vector<float>, 9> tables = [] {
    std::array<std::vector<float>, 9> made;
    for (const DataType of : {DataType::kF16, DataType::kBF16, DataType::kE4M3, DataType::kE5M2}) {
      std::vector<float>& table = made[static_cast<size_t>(of)];
      table.resize(size_t{1} << (8 * SizeOf(of)));
      for (size_t i = 0; i < table.size(); ++i) {
        table[i] = ValueOf(of, static_cast<uint16_t>(i));
      }
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
      return EncodeRaw(__float2half_rn(narrow), to);
    case DataType::kBF16:
      return EncodeRaw(__float2bfloat16_rn(narrow), to);
    case DataType::kE4M3:
      return EncodeRaw(__nv_cvt_float_to_fp8(narrow, __NV_SATFINITE, __NV_E4M3), to);
    case DataType::kE5M2:
      return EncodeRaw(__nv_cvt_float_to_fp8(narrow, __NV_SATFINITE, __NV_E5M2), to);
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
