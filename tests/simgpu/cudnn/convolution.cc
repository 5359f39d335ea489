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
constexpr size_t kRowsOfATask = size_t{kRows} * 16;
// Sums of sums of so many products: their error stays small, and their factors in the cache.
constexpr size_t kSums = 512;
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

// A Point is an element's offset in the source, and the offset of what belongs to it in a tensor.
struct Point {
  int64_t source = 0;
  int64_t tensor = 0;
};

// result[i][lane] = sum over s < length of rows[i][sums[s].source] * b[s][lane]
template <typename T>
using Kernel = void (*)(const std::array<const T*, kRows>& rows, const Point* sums, size_t length,
                        const T* b, Block<T>* result);

template <typename T>
__attribute__((always_inline)) inline void Multiply(const std::array<const T*, kRows>& rows,
                                                    const Point* sums, size_t length, const T* b,
                                                    Block<T>* result) {
  using Vector = typename Lanes<T>::Vector;
  Vector totals[kRows] = {};
  for (size_t s = 0; s < length; ++s, b += Lanes<T>::kCount) {
    const Vector factor = *reinterpret_cast<const Vector*>(b);
    for (size_t i = 0; i < kRows; ++i) totals[i] += factor * rows[i][sums[s].source];
  }
  for (int i = 0; i < kRows; ++i) {
    *reinterpret_cast<Vector*>(result->data() + i * Lanes<T>::kCount) = totals[i];
  }
}

template <typename T>
void MultiplyAnywhere(const std::array<const T*, kRows>& rows, const Point* sums, size_t length,
                      const T* b, Block<T>* result) {
  Multiply(rows, sums, length, b, result);
}

#if defined(__x86_64__)
template <typename T>
__attribute__((target("avx512f"))) void MultiplyAvx512(const std::array<const T*, kRows>& rows,
                                                       const Point* sums, size_t length, const T* b,
                                                       Block<T>* result) {
  Multiply(rows, sums, length, b, result);
}

template <typename T>
__attribute__((target("avx2,fma"))) void MultiplyAvx2(const std::array<const T*, kRows>& rows,
                                                      const Point* sums, size_t length, const T* b,
                                                      Block<T>* result) {
  Multiply(rows, sums, length, b, result);
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

// One spatial dimension. A place of the image and a tap of the filter meet the element of the
// source whose coordinate is the sum of theirs.
struct Axis {
  struct At {
    int64_t index = 0;       // in the tensor
    int64_t coordinate = 0;  // in the source
  };
  int64_t lead = 0;    // zeros in front of the source
  int64_t extent = 0;  // of the source with zeros in front and behind
  std::vector<At> places;
  std::vector<At> taps;
};

// A Job is one call of Convolve: a product of matrices for each group. The source is x, or y for
// bwd_data; one matrix is it, with its elements where places and taps meet, and never made.
template <typename T>
class Job {
 public:
  Job(const Convolution& convolution, const void* x, const void* w, const void* y)
      : conv_(convolution),
        w_(static_cast<const char*>(w)),
        y_(static_cast<const char*>(y)),
        source_(back_ ? convolution.y : convolution.x),
        source_data_(static_cast<const char*>(back_ ? y : x)),
        image_(back_ ? convolution.x : convolution.y),
        c_(convolution.w.dims[1]),
        k_(convolution.w.dims[0] / convolution.groups),
        channels_(back_ ? k_ : c_),
        threads_(convolution.MultiplyAdds() < kFewMultiplyAdds ? 1 : 2),
        result_(static_cast<size_t>(convolution.Output().Extent())) {}

  std::vector<T> Go() {
    // Places of bwd_data whose distance is the stride meet the same taps.
    const auto classes = back_ ? conv_.stride : std::array<int64_t, 3>{1, 1, 1};
    for (int64_t d = 0; d < classes[0]; ++d)
      for (int64_t h = 0; h < classes[1]; ++h)
        for (int64_t w = 0; w < classes[2]; ++w) {
          axes_ = {MakeAxis(0, d), MakeAxis(1, h), MakeAxis(2, w)};
          MultiplyClass();
        }
    return std::move(result_);
  }

 private:
  static constexpr int64_t kLanes = Lanes<T>::kCount;

  Axis MakeAxis(size_t dim, int64_t first) const {
    const int64_t taps = conv_.w.dims[dim + 2];
    const int64_t size = image_.dims[dim + 2];
    const int64_t pad = conv_.pad[dim], stride = conv_.stride[dim], dilation = conv_.dilation[dim];
    Axis axis;
    axis.lead = back_ ? std::max<int64_t>(0, DivideUp((taps - 1) * dilation - pad, stride)) : pad;
    axis.extent = back_ ? axis.lead + (size - 1 + pad) / stride + 1
                        : (size - 1) * stride + (taps - 1) * dilation + 1;
    for (int64_t i = first; i < size; i += back_ ? stride : 1) {
      axis.places.push_back({i, back_ ? i / stride : i * stride});
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t from = first + pad - tap * dilation;
      if (back_ && from % stride != 0) continue;
      const int64_t index = conv_.flipped ? taps - 1 - tap : tap;
      axis.taps.push_back({index, back_ ? from / stride + axis.lead : tap * dilation});
    }
    return axis;
  }

  // As many images at a time as are worth their memory.
  void MultiplyClass() {
    const int64_t elements = axes_[0].extent * axes_[1].extent * axes_[2].extent * source_.dims[1];
    const int64_t bytes = std::max<int64_t>(1, elements * static_cast<int64_t>(sizeof(T)));
    const int64_t chunk = std::clamp<int64_t>(kChunkBytes / bytes, 1, source_.dims[0]);
    for (int64_t first = 0; first < source_.dims[0]; first += chunk) {
      MultiplyImages(first, std::min(chunk, source_.dims[0] - first));
    }
  }

  void MultiplyImages(int64_t first, int64_t count) {
    ReadSource(first, count);
    std::vector<Point> taps, places;
    for (const auto& d : axes_[0].taps)
      for (const auto& h : axes_[1].taps)
        for (const auto& w : axes_[2].taps)
          for (int64_t channel = 0; channel < channels_; ++channel) {
            taps.push_back({At(0, d.coordinate, h.coordinate, w.coordinate) + channel,
                            conv_.w.Offset(back_ ? channel : 0, back_ ? 0 : channel, d.index,
                                           h.index, w.index)});
          }
    for (int64_t n = 0; n < count; ++n)
      for (const auto& d : axes_[0].places)
        for (const auto& h : axes_[1].places)
          for (const auto& w : axes_[2].places) {
            places.push_back({At(n, d.coordinate, h.coordinate, w.coordinate),
                              image_.Offset(first + n, 0, d.index, h.index, w.index)});
          }
    switch (conv_.operation) {
      case Operation::kFwd:
        return MultiplyGroups(places, taps, conv_.w, w_, k_, 0, conv_.y, 1);
      case Operation::kBwdData:
        return MultiplyGroups(places, taps, conv_.w, w_, c_, 1, conv_.x, 1);
      case Operation::kBwdFilter:
        return MultiplyGroups(taps, places, conv_.y, y_, k_, 1, conv_.w, 0);
    }
  }

  int64_t At(int64_t n, int64_t d, int64_t h, int64_t w) const {
    return (((n * axes_[0].extent + d) * axes_[1].extent + h) * axes_[2].extent + w) *
           source_.dims[1];
  }

  void Decode(const Tensor& tensor, const char* data, int64_t offset, int64_t step, int64_t count,
              T* to, int64_t to_step) const {
    DecodeElements(tensor.type, data + offset * SizeOf(tensor.type), step, count, to, to_step);
    for (int64_t i = 0; conv_.tf32 && i < count; ++i) {
      to[i * to_step] = RoundToTf32(static_cast<float>(to[i * to_step]));
    }
  }

  // Into values_, with channels innermost.
  void ReadSource(int64_t first, int64_t count) {
    const int64_t channels = source_.dims[1];
    values_.assign(static_cast<size_t>(At(count, 0, 0, 0)), 0);
    const auto inside = [&](size_t dim) {
      return std::clamp<int64_t>(axes_[dim].extent - axes_[dim].lead, 0, source_.dims[dim + 2]);
    };
    const int64_t depth = inside(0), height = inside(1), width = inside(2);
    Parallel(count * depth * height, [&](int64_t row) {
      const int64_t n = row / height / depth, d = row / height % depth, h = row % height;
      const int64_t offset = source_.Offset(first + n, 0, d, h, 0);
      T* const to = values_.data() + At(n, d + axes_[0].lead, h + axes_[1].lead, axes_[2].lead);
      if (source_.strides[1] == 1) {
        for (int64_t w = 0; w < width; ++w) {
          Decode(source_, source_data_, offset + w * source_.strides[4], 1, channels,
                 to + w * channels, 1);
        }
      } else {
        for (int64_t c = 0; c < channels; ++c) {
          Decode(source_, source_data_, offset + c * source_.strides[1], source_.strides[4], width,
                 to + c, channels);
        }
      }
    });
  }

  // Adds to each row's `columns` results, which lie in dimension `to_dim` of `to`, what the sum of
  // source times `with` is. The columns of `with` lie in its dimension `dim`.
  void MultiplyGroups(const std::vector<Point>& rows, const std::vector<Point>& sums,
                      const Tensor& with, const char* data, int64_t columns, size_t dim,
                      const Tensor& to, size_t to_dim) {
    const int64_t blocks = DivideUp(columns, kLanes);
    const auto block_size = static_cast<int64_t>(sums.size()) * kLanes;
    // Groups are parts of the filters, or of the channels of x and y.
    const auto group_step = [&](const Tensor& tensor) {
      return &tensor == &conv_.w ? k_ * tensor.strides[0] : columns * tensor.strides[1];
    };
    const int64_t with_step = group_step(with), to_step = group_step(to);
    std::vector<T> packed(static_cast<size_t>(conv_.groups * blocks * block_size));
    Parallel(conv_.groups * blocks, [&](int64_t task) {
      const int64_t g = task / blocks, column = task % blocks * kLanes;
      T* at = packed.data() + task * block_size;
      for (const Point& sum : sums) {
        Decode(with, data, sum.tensor + g * with_step + column * with.strides[dim],
               with.strides[dim], std::min(kLanes, columns - column), at, 1);
        at += kLanes;
      }
    });
    const auto tasks = static_cast<int64_t>((rows.size() + kRowsOfATask - 1) / kRowsOfATask);
    Parallel(conv_.groups * tasks, [&](int64_t task) {
      const int64_t g = task / tasks;
      const size_t begin = static_cast<size_t>(task % tasks) * kRowsOfATask;
      const size_t end = std::min(rows.size(), begin + kRowsOfATask);
      for (int64_t block = 0; block < blocks; ++block) {
        const T* const b = packed.data() + (g * blocks + block) * block_size;
        T* const results = result_.data() + g * to_step + block * kLanes * to.strides[to_dim];
        const int64_t lanes = std::min(kLanes, columns - block * kLanes);
        for (size_t s = 0; s < sums.size(); s += kSums) {
          for (size_t row = begin; row < end; row += kRows) {
            MultiplyBlock(values_.data() + g * channels_, rows.data() + row, end - row,
                          sums.data() + s, std::min(kSums, sums.size() - s),
                          b + static_cast<int64_t>(s) * kLanes, lanes, to.strides[to_dim], results);
          }
        }
      }
    });
  }

  void MultiplyBlock(const T* source, const Point* rows, size_t row_count, const Point* sums,
                     size_t length, const T* b, int64_t lanes, int64_t step, T* results) const {
    std::array<const T*, kRows> from;
    row_count = std::min<size_t>(row_count, kRows);
    for (size_t i = 0; i < kRows; ++i) from[i] = source + rows[i < row_count ? i : 0].source;
    Block<T> block;
    kernel_(from, sums, length, b, &block);
    for (size_t i = 0; i < row_count; ++i) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        results[rows[i].tensor + lane * step] += block[i * kLanes + static_cast<size_t>(lane)];
      }
    }
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

  const Convolution& conv_;
  const bool back_ = conv_.operation == Operation::kBwdData;
  const char* const w_;
  const char* const y_;
  const Tensor& source_;
  const char* const source_data_;
  const Tensor& image_;     // that the places are of
  const int64_t c_, k_;     // channels and filters of one group
  const int64_t channels_;  // of the source, of one group
  const int threads_;
  const Kernel<T> kernel_ = BestKernel<T>();
  std::array<Axis, 3> axes_;
  std::vector<T> values_;
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
