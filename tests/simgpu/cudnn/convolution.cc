#include "tests/simgpu/cudnn/convolution.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "tests/simgpu/cudnn/element.h"

namespace convtune::simgpu {
namespace {

// Rows of a block of results: it divides the sizes 7 to 112 of many networks.
constexpr int kRows = 7;
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr double kFewMultiplyAdds = 1e6;  // not worth a thread

// Results of one row of a block; one register of AVX-512.
template <typename T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
  static constexpr int64_t kCount = 64 / sizeof(T);
};

template <typename T>
using Block = std::array<T, kRows * Lanes<T>::kCount>;

// One filter tap of one row of the input, or one row of both tensors (bwd_filter).
template <typename T>
struct Tap {
  const T* a;
  const T* b;
};

// result[i][lane] = sum over taps and l < length of
//   a[a_offset + i * a_row + l * a_step] * b[b_offset + l * b_step + lane]
struct Steps {
  int64_t length = 0;
  int64_t a_row = 0;
  int64_t a_step = 0;
  int64_t b_step = 0;
};

template <typename T>
using Kernel = void (*)(const std::vector<Tap<T>>& taps, const Steps& steps, int64_t a_offset,
                        int64_t b_offset, Block<T>* result);

template <typename T>
__attribute__((always_inline)) inline void Multiply(const std::vector<Tap<T>>& taps,
                                                    const Steps& steps, int64_t a_offset,
                                                    int64_t b_offset, Block<T>* result) {
  using Vector = typename Lanes<T>::Vector;
  Vector sums[kRows] = {};
  for (const Tap<T>& tap : taps) {
    const T* a = tap.a + a_offset;
    const T* b = tap.b + b_offset;
    for (int64_t l = 0; l < steps.length; ++l, a += steps.a_step, b += steps.b_step) {
      const Vector factor = *reinterpret_cast<const Vector*>(b);
      for (int i = 0; i < kRows; ++i) sums[i] += factor * a[i * steps.a_row];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    *reinterpret_cast<Vector*>(result->data() + i * Lanes<T>::kCount) = sums[i];
  }
}

template <typename T>
void MultiplyAnywhere(const std::vector<Tap<T>>& taps, const Steps& steps, int64_t a_offset,
                      int64_t b_offset, Block<T>* result) {
  Multiply(taps, steps, a_offset, b_offset, result);
}

#if defined(__x86_64__)
template <typename T>
__attribute__((target("avx512f"))) void MultiplyAvx512(const std::vector<Tap<T>>& taps,
                                                       const Steps& steps, int64_t a_offset,
                                                       int64_t b_offset, Block<T>* result) {
  Multiply(taps, steps, a_offset, b_offset, result);
}

template <typename T>
__attribute__((target("avx2,fma"))) void MultiplyAvx2(const std::vector<Tap<T>>& taps,
                                                      const Steps& steps, int64_t a_offset,
                                                      int64_t b_offset, Block<T>* result) {
  Multiply(taps, steps, a_offset, b_offset, result);
}
#endif

template <typename T>
Kernel<T> BestKernel() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return MultiplyAvx512<T>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return MultiplyAvx2<T>;
#endif
  return MultiplyAnywhere<T>;
}

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A Dense is some images of a tensor with their channels innermost and zeros left and right:
// [image][group][depth][height][column][channel].
template <typename T>
struct Dense {
  int64_t groups, channels, depth, height, left, columns;
  int64_t padded_channels;
  std::vector<T> values;

  // The first column, which is `left` in front of the image.
  const T* Row(int64_t n, int64_t g, int64_t d, int64_t h) const {
    return values.data() +
           (((n * groups + g) * depth + d) * height + h) * columns * padded_channels;
  }
};

// A Job is one call of Convolve. Sizes with three entries are depth, height, width.
template <typename T>
class Job {
 public:
  Job(const Convolution& convolution, const void* x, const void* w, const void* y)
      : conv_(convolution),
        x_(static_cast<const char*>(x)),
        w_(static_cast<const char*>(w)),
        y_(static_cast<const char*>(y)),
        in_(Spatial(convolution.x)),
        filter_(Spatial(convolution.w)),
        out_(Spatial(convolution.y)),
        images_(convolution.x.dims[0]),
        c_(convolution.w.dims[1]),
        k_(convolution.w.dims[0] / convolution.groups),
        threads_(convolution.MultiplyAdds() < kFewMultiplyAdds ? 1 : 2),
        result_(static_cast<size_t>(convolution.Output().Extent())) {}

  std::vector<T> Go() {
    switch (conv_.operation) {
      case Operation::kFwd:
        Forward();
        break;
      case Operation::kBwdData:
        BackwardData();
        break;
      case Operation::kBwdFilter:
        BackwardFilter();
        break;
    }
    return std::move(result_);
  }

 private:
  using Triple = std::array<int64_t, 3>;
  static constexpr int64_t kLanes = Lanes<T>::kCount;

  static Triple Spatial(const Tensor& tensor) {
    return {tensor.dims[2], tensor.dims[3], tensor.dims[4]};
  }

  void Parallel(int64_t count, const std::function<void(int64_t)>& task) const {
    std::atomic<int64_t> next = 0;
    const auto work = [&] {
      for (int64_t i = next++; i < count; i = next++) task(i);
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < threads_; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
  }

  // As many images at a time as are worth their memory.
  int64_t ChunkOf(int64_t elements_per_image) const {
    const int64_t bytes =
        std::max<int64_t>(1, elements_per_image) * static_cast<int64_t>(sizeof(T));
    return std::clamp<int64_t>(kChunkBytes / bytes, 1, images_);
  }

  // `slack`: elements behind the end that may be read, and are not used.
  Dense<T> Pack(const Tensor& tensor, const char* data, int64_t first, int64_t count, int64_t left,
                int64_t columns, int64_t channel_multiple, int64_t slack) const {
    Dense<T> dense;
    dense.groups = conv_.groups;
    dense.channels = tensor.dims[1] / conv_.groups;
    dense.depth = tensor.dims[2];
    dense.height = tensor.dims[3];
    dense.left = left;
    dense.columns = columns;
    dense.padded_channels = DivideUp(dense.channels, channel_multiple) * channel_multiple;
    const int64_t rows = count * dense.groups * dense.depth * dense.height;
    dense.values.resize(static_cast<size_t>(rows * columns * dense.padded_channels + slack));
    const int64_t width = std::clamp<int64_t>(columns - left, 0, tensor.dims[4]);
    Parallel(rows, [&](int64_t row) {
      const int64_t h = row % dense.height;
      const int64_t d = row / dense.height % dense.depth;
      const int64_t g = row / dense.height / dense.depth % dense.groups;
      const int64_t n = row / dense.height / dense.depth / dense.groups;
      const int64_t offset = tensor.Offset(first + n, g * dense.channels, d, h, 0);
      T* const to = dense.values.data() + (row * columns + left) * dense.padded_channels;
      const auto copy = [&](int64_t at, int64_t step, int64_t size, T* target,
                            int64_t target_step) {
        DecodeElements(tensor.type, data + at * SizeOf(tensor.type), step, size, target,
                       target_step);
        if (!conv_.tf32) return;
        for (int64_t i = 0; i < size; ++i) {
          target[i * target_step] = RoundToTf32(static_cast<float>(target[i * target_step]));
        }
      };
      if (tensor.strides[1] == 1) {
        for (int64_t i = 0; i < width; ++i) {
          copy(offset + i * tensor.strides[4], 1, dense.channels, to + i * dense.padded_channels,
               1);
        }
      } else {
        for (int64_t c = 0; c < dense.channels; ++c) {
          copy(offset + c * tensor.strides[1], tensor.strides[4], width, to + c,
               dense.padded_channels);
        }
      }
    });
    return dense;
  }

  int64_t Taps() const { return filter_[0] * filter_[1] * filter_[2]; }

  // The filter's offset of a tap that multiplies x at place * stride + tap * dilation - pad.
  int64_t FilterOffset(int64_t k, int64_t c, const Triple& tap) const {
    Triple at = tap;
    if (conv_.flipped) {
      for (size_t i = 0; i < 3; ++i) at[i] = filter_[i] - 1 - tap[i];
    }
    return conv_.w.Offset(k, c, at[0], at[1], at[2]);
  }

  // [group][block of results][tap][summed channel][lane]; `results_are_k`: fwd.
  std::vector<T> PackFilter(bool results_are_k) const {
    const int64_t results = results_are_k ? k_ : c_;
    const int64_t summed = results_are_k ? c_ : k_;
    const int64_t blocks = DivideUp(results, kLanes);
    std::vector<T> packed(static_cast<size_t>(conv_.groups * blocks * Taps() * summed * kLanes));
    Parallel(conv_.groups * blocks, [&](int64_t task) {
      const int64_t g = task / blocks;
      T* to = packed.data() + task * Taps() * summed * kLanes;
      for (int64_t tap = 0; tap < Taps(); ++tap) {
        const Triple at = {tap / filter_[2] / filter_[1], tap / filter_[2] % filter_[1],
                           tap % filter_[2]};
        for (int64_t s = 0; s < summed; ++s, to += kLanes) {
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            const int64_t result = task % blocks * kLanes + lane;
            if (result >= results) break;
            const int64_t offset = results_are_k ? FilterOffset(g * k_ + result, s, at)
                                                 : FilterOffset(g * k_ + s, result, at);
            DecodeElements(conv_.w.type, w_ + offset * SizeOf(conv_.w.type), 1, 1, to + lane, 1);
            if (conv_.tf32) to[lane] = RoundToTf32(static_cast<float>(to[lane]));
          }
        }
      }
    });
    return packed;
  }

  // Blocks of `count` results of one row, `column_step` columns apart from `first_column` on.
  void Row(const std::vector<Tap<T>>& taps, const Steps& steps, int64_t channels,
           int64_t filter_block, const Tensor& output, const Triple& place, int64_t n, int64_t g,
           int64_t first_column, int64_t column_step, int64_t count) {
    Block<T> block;
    for (int64_t first = 0; first < channels; first += kLanes) {
      for (int64_t j = 0; j < count; j += kRows) {
        kernel_(taps, steps, j * steps.a_row, first / kLanes * filter_block, &block);
        for (int64_t i = 0; i < std::min<int64_t>(kRows, count - j); ++i) {
          const int64_t offset = output.Offset(n, g * channels + first, place[0], place[1],
                                               first_column + (j + i) * column_step);
          for (int64_t lane = 0; lane < std::min(kLanes, channels - first); ++lane) {
            result_[static_cast<size_t>(offset + lane * output.strides[1])] =
                block[static_cast<size_t>(i * kLanes + lane)];
          }
        }
      }
    }
  }

  void Forward() {
    const std::vector<T> filter = PackFilter(/*results_are_k=*/true);
    const int64_t tap_size = c_ * kLanes;
    const int64_t blocks = DivideUp(k_, kLanes);
    const int64_t columns =
        (out_[2] - 1) * conv_.stride[2] + (filter_[2] - 1) * conv_.dilation[2] + 1;
    const int64_t chunk = ChunkOf(conv_.groups * in_[0] * in_[1] * columns * c_);
    const Steps steps = {c_, conv_.stride[2] * c_, 1, kLanes};
    for (int64_t first = 0; first < images_; first += chunk) {
      const int64_t count = std::min(chunk, images_ - first);
      const Dense<T> x =
          Pack(conv_.x, x_, first, count, conv_.pad[2], columns, 1, kRows * steps.a_row);
      Parallel(count * conv_.groups * out_[0] * out_[1], [&](int64_t task) {
        const Triple place = {task / out_[1] % out_[0], task % out_[1], 0};
        const int64_t g = task / out_[1] / out_[0] % conv_.groups;
        const int64_t n = task / out_[1] / out_[0] / conv_.groups;
        std::vector<Tap<T>> taps;
        for (int64_t tap = 0; tap < Taps(); ++tap) {
          const int64_t d = At(0, place[0], tap / filter_[2] / filter_[1]);
          const int64_t h = At(1, place[1], tap / filter_[2] % filter_[1]);
          if (d < 0 || d >= in_[0] || h < 0 || h >= in_[1]) continue;
          taps.push_back({x.Row(n, g, d, h) + tap % filter_[2] * conv_.dilation[2] * c_,
                          filter.data() + (g * blocks * Taps() + tap) * tap_size});
        }
        Row(taps, steps, k_, Taps() * tap_size, conv_.y, place, first + n, g, 0, 1, out_[2]);
      });
    }
  }

  // The place in x that an output's place and a tap meet.
  int64_t At(size_t dim, int64_t place, int64_t tap) const {
    return place * conv_.stride[dim] + tap * conv_.dilation[dim] - conv_.pad[dim];
  }

  // The place in y that a place of x and a tap come from, times the stride.
  int64_t From(size_t dim, int64_t place, int64_t tap) const {
    return place + conv_.pad[dim] - tap * conv_.dilation[dim];
  }

  // Places of x whose distance is the stride meet the same taps, and neighbours in y.
  void BackwardData() {
    const std::vector<T> filter = PackFilter(/*results_are_k=*/false);
    const int64_t tap_size = k_ * kLanes;
    const int64_t blocks = DivideUp(c_, kLanes);
    const int64_t stride = conv_.stride[2];
    const int64_t left =
        std::max<int64_t>(0, DivideUp((filter_[2] - 1) * conv_.dilation[2] - conv_.pad[2], stride));
    const int64_t columns = left + (in_[2] - 1 + conv_.pad[2]) / stride + 1;
    const int64_t chunk = ChunkOf(conv_.groups * out_[0] * out_[1] * columns * k_);
    const Steps steps = {k_, k_, 1, kLanes};
    for (int64_t first = 0; first < images_; first += chunk) {
      const int64_t count = std::min(chunk, images_ - first);
      const Dense<T> y = Pack(conv_.y, y_, first, count, left, columns, 1, kRows * k_);
      Parallel(count * conv_.groups * in_[0] * in_[1], [&](int64_t task) {
        const Triple place = {task / in_[1] % in_[0], task % in_[1], 0};
        const int64_t g = task / in_[1] / in_[0] % conv_.groups;
        const int64_t n = task / in_[1] / in_[0] / conv_.groups;
        for (int64_t column = 0; column < std::min(stride, in_[2]); ++column) {
          std::vector<Tap<T>> taps;
          for (int64_t tap = 0; tap < Taps(); ++tap) {
            const Triple from = {From(0, place[0], tap / filter_[2] / filter_[1]),
                                 From(1, place[1], tap / filter_[2] % filter_[1]),
                                 From(2, column, tap % filter_[2])};
            if (from[0] < 0 || from[1] < 0 || from[0] % conv_.stride[0] != 0 ||
                from[1] % conv_.stride[1] != 0 || from[2] % stride != 0) {
              continue;
            }
            const int64_t d = from[0] / conv_.stride[0];
            const int64_t h = from[1] / conv_.stride[1];
            if (d >= out_[0] || h >= out_[1]) continue;
            taps.push_back({y.Row(n, g, d, h) + (left + from[2] / stride) * k_,
                            filter.data() + (g * blocks * Taps() + tap) * tap_size});
          }
          Row(taps, steps, c_, Taps() * tap_size, conv_.x, place, first + n, g, column, stride,
              DivideUp(in_[2] - column, stride));
        }
      });
    }
  }

  void BackwardFilter() {
    const int64_t columns =
        (out_[2] - 1) * conv_.stride[2] + (filter_[2] - 1) * conv_.dilation[2] + 1;
    const int64_t padded_k = DivideUp(k_, kLanes) * kLanes;
    const int64_t chunk = ChunkOf(
        conv_.groups * (in_[0] * in_[1] * columns * c_ + out_[0] * out_[1] * out_[2] * padded_k));
    const Steps steps = {out_[2], 1, conv_.stride[2] * c_, padded_k};
    const int64_t c_blocks = DivideUp(c_, kRows);
    for (int64_t first = 0; first < images_; first += chunk) {
      const int64_t count = std::min(chunk, images_ - first);
      const Dense<T> x = Pack(conv_.x, x_, first, count, conv_.pad[2], columns, 1, kRows);
      const Dense<T> y = Pack(conv_.y, y_, first, count, 0, out_[2], kLanes, 0);
      Parallel(conv_.groups * Taps() * c_blocks, [&](int64_t task) {
        const int64_t c = task % c_blocks * kRows;
        const int64_t tap = task / c_blocks % Taps();
        const int64_t g = task / c_blocks / Taps();
        const Triple at = {tap / filter_[2] / filter_[1], tap / filter_[2] % filter_[1],
                           tap % filter_[2]};
        for (int64_t n = 0; n < count; ++n) {
          std::vector<Tap<T>> rows;
          for (int64_t z = 0; z < out_[0]; ++z) {
            for (int64_t p = 0; p < out_[1]; ++p) {
              const int64_t d = At(0, z, at[0]);
              const int64_t h = At(1, p, at[1]);
              if (d < 0 || d >= in_[0] || h < 0 || h >= in_[1]) continue;
              rows.push_back(
                  {x.Row(n, g, d, h) + at[2] * conv_.dilation[2] * c_ + c, y.Row(n, g, z, p)});
            }
          }
          Block<T> block;
          for (int64_t k = 0; k < k_; k += kLanes) {
            kernel_(rows, steps, 0, k, &block);
            for (int64_t i = 0; i < std::min<int64_t>(kRows, c_ - c); ++i) {
              for (int64_t lane = 0; lane < std::min(kLanes, k_ - k); ++lane) {
                result_[static_cast<size_t>(FilterOffset(g * k_ + k + lane, c + i, at))] +=
                    block[static_cast<size_t>(i * kLanes + lane)];
              }
            }
          }
        }
      });
    }
  }

  const Convolution& conv_;
  const char* const x_;
  const char* const w_;
  const char* const y_;
  const Triple in_, filter_, out_;
  const int64_t images_;
  const int64_t c_, k_;  // channels and filters of one group
  const int threads_;
  const Kernel<T> kernel_ = BestKernel<T>();
  std::vector<T> result_;
};

}  // namespace

int64_t Tensor::Extent() const {
  int64_t extent = 1;
  for (size_t i = 0; i < dims.size(); ++i) extent += (dims[i] - 1) * strides[i];
  return extent;
}

int64_t Tensor::Count() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

const Tensor& Convolution::Output() const {
  return operation == Operation::kFwd ? y : operation == Operation::kBwdData ? x : w;
}

double Convolution::MultiplyAdds() const {
  return static_cast<double>(y.Count()) *
         static_cast<double>(w.Count() / std::max<int64_t>(1, w.dims[0]));
}

bool SumsInDouble(const Convolution& convolution) {
  const auto exact = [](DataType type) {
    return type == DataType::kF64 || type == DataType::kI8 || type == DataType::kI32;
  };
  return exact(convolution.x.type) || exact(convolution.w.type) || exact(convolution.y.type);
}

template <typename T>
std::vector<T> Convolve(const Convolution& convolution, const void* x, const void* w,
                        const void* y) {
  return Job<T>(convolution, x, w, y).Go();
}
template std::vector<float> Convolve(const Convolution&, const void*, const void*, const void*);
template std::vector<double> Convolve(const Convolution&, const void*, const void*, const void*);

}  // namespace convtune::simgpu
