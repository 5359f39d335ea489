// A convolution by its definition, for tests.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/simgpu/cudnn/convolution.h"
#include "tests/simgpu/cudnn/element.h"

namespace convtune::simgpu {

// A tensor's memory, and the values that it holds.
struct Filled {
  Filled(const Tensor& tensor, bool small_integers, std::mt19937* random) {
    bytes.resize(static_cast<size_t>(tensor.Bytes()));
    std::normal_distribution<double> normal;
    std::uniform_int_distribution<int> integer(-2, 2);
    const bool whole = small_integers || tensor.type == DataType::kI8;
    for (int64_t i = 0; i < tensor.Extent(); ++i) {
      char* const to = bytes.data() + i * SizeOf(tensor.type);
      EncodeElement(tensor.type, whole ? integer(*random) : normal(*random), to);
      values.push_back(DecodeElement(tensor.type, to));
    }
  }
  std::vector<char> bytes;
  std::vector<double> values;
};

// The definition: seven loops for each group, in double precision.
inline std::vector<double> Naive(const Convolution& conv, const Filled& x, const Filled& w,
                                 const Filled& y) {
  std::vector<double> result(static_cast<size_t>(conv.Output().Extent()));
  const int64_t filters = conv.w.dims[0] / conv.groups;
  const int64_t channels = conv.w.dims[1];
  for (int64_t n = 0; n < conv.y.dims[0]; ++n)
    for (int64_t k = 0; k < conv.y.dims[1]; ++k)
      for (int64_t z = 0; z < conv.y.dims[2]; ++z)
        for (int64_t p = 0; p < conv.y.dims[3]; ++p)
          for (int64_t q = 0; q < conv.y.dims[4]; ++q)
            for (int64_t c = 0; c < channels; ++c)
              for (int64_t tap = 0; tap < conv.w.dims[2] * conv.w.dims[3] * conv.w.dims[4]; ++tap) {
                const std::array<int64_t, 3> at = {tap / conv.w.dims[4] / conv.w.dims[3],
                                                   tap / conv.w.dims[4] % conv.w.dims[3],
                                                   tap % conv.w.dims[4]};
                const std::array<int64_t, 3> out = {z, p, q};
                std::array<int64_t, 3> in = {};
                std::array<int64_t, 3> filter = at;
                bool inside = true;
                for (size_t i = 0; i < 3; ++i) {
                  in[i] = out[i] * conv.stride[i] - conv.pad[i] + at[i] * conv.dilation[i];
                  inside = inside && in[i] >= 0 && in[i] < conv.x.dims[i + 2];
                  if (conv.flipped) filter[i] = conv.w.dims[i + 2] - 1 - at[i];
                }
                if (!inside) continue;
                const auto ox = static_cast<size_t>(
                    conv.x.Offset(n, k / filters * channels + c, in[0], in[1], in[2]));
                const auto ow =
                    static_cast<size_t>(conv.w.Offset(k, c, filter[0], filter[1], filter[2]));
                const auto oy = static_cast<size_t>(conv.y.Offset(n, k, z, p, q));
                switch (conv.operation) {
                  case Operation::kFwd:
                    result[oy] += x.values[ox] * w.values[ow];
                    break;
                  case Operation::kBwdData:
                    result[ox] += y.values[oy] * w.values[ow];
                    break;
                  case Operation::kBwdFilter:
                    result[ow] += x.values[ox] * y.values[oy];
                    break;
                }
              }
  return result;
}

}  // namespace convtune::simgpu
