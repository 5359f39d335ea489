#include "server/worker/verify/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "proto/model/problem/conv_problem.h"

namespace convtune::worker::verify {
namespace {

constexpr int64_t kMostElements = 2048;
constexpr int64_t kFewLargeElements = 8;
constexpr size_t kSpatial = 3;

using Triple = std::array<int64_t, kSpatial>;

// A Shape is the problem's with three spatial dimensions, the first of which may be 1.
struct Shape {
  explicit Shape(const ConvProblem& p)
      : x(Behind(p.x_dims(), 2, 1)),
        w(Behind(p.w_dims(), 2, 1)),
        y(Behind(p.y_dims(), 2, 1)),
        x_strides(Behind(p.x_strides(), 2, 0)),
        w_strides(Behind(p.w_strides(), 2, 0)),
        y_strides(Behind(p.y_strides(), 2, 0)),
        pad(Behind(p.pad_low(), 0, 0)),
        stride(Behind(p.strides(), 0, 1)),
        dilation(Behind(p.dilations(), 0, 1)) {}

  static Triple Behind(const std::vector<int64_t>& values, size_t first, int64_t fill) {
    Triple triple = {fill, fill, fill};
    const size_t rank = values.size() - first;
    for (size_t i = 0; i < rank; ++i) triple[kSpatial - rank + i] = values[first + i];
    return triple;
  }

  Triple x, w, y;
  Triple x_strides, w_strides, y_strides;
  Triple pad, stride, dilation;
};

// An Accumulator adds up products of elements of two tensors.
class Accumulator {
 public:
  Accumulator(const TensorValues& a, const TensorValues& b) : a_(a), b_(b) {}

  // Adds `count` products, the first of the elements at these offsets, each
  // next one further by the steps.
  void Add(int64_t a, int64_t a_step, int64_t b, int64_t b_step, int64_t count) {
    const auto a_size = static_cast<int64_t>(a_.size());
    const auto b_size = static_cast<int64_t>(b_.size());
    a %= a_size;
    b %= b_size;
    a_step %= a_size;
    b_step %= b_size;
    for (int64_t i = 0; i < count; ++i) {
      const double product = a_[static_cast<size_t>(a)] * b_[static_cast<size_t>(b)];
      sum_ += product;
      magnitude_ += std::abs(product);
      a += a_step;
      a -= a >= a_size ? a_size : 0;
      b += b_step;
      b -= b >= b_size ? b_size : 0;
    }
  }

  double sum() const { return sum_; }
  double magnitude() const { return magnitude_; }

 private:
  const TensorValues& a_;
  const TensorValues& b_;
  double sum_ = 0;
  double magnitude_ = 0;
};

// Coordinates of x, w and y, along one dimension, whose elements are in a product together.
struct Meeting {
  int64_t x, w, y;
};

// Those along dimension `d` for the elements of the output with this coordinate.
std::vector<Meeting> MeetingsOf(const ConvProblem& problem, const Shape& s, size_t d,
                                int64_t coordinate) {
  const Operation operation = problem.operation();
  const bool of_filter = operation == Operation::kBwdFilter;
  std::vector<Meeting> meetings;
  for (int64_t i = 0; i < (of_filter ? s.y : s.w)[d]; ++i) {
    const int64_t w = of_filter ? coordinate : i;
    // Convolution mode flips the filter.
    const int64_t tap = problem.mode() == ConvolutionMode::kConvolution ? s.w[d] - 1 - w : w;
    const int64_t shift = tap * s.dilation[d] - s.pad[d];
    const int64_t y = of_filter                      ? i
                      : operation == Operation::kFwd ? coordinate
                                                     : (coordinate - shift) / s.stride[d];
    const int64_t x = y * s.stride[d] + shift;
    // With strides, not every element of x meets every tap.
    if (operation == Operation::kBwdData && x != coordinate) continue;
    if (x >= 0 && x < s.x[d] && y >= 0 && y < s.y[d]) meetings.push_back({x, w, y});
  }
  return meetings;
}

// The sum of all products of the element at these coordinates.
Accumulator SumOf(const ConvProblem& p, const ReferenceInputs& inputs,
                  const std::vector<int64_t>& coordinates) {
  using enum cudnn::TensorRole;
  const Shape s(p);
  const Triple position = Shape::Behind(coordinates, 2, 0);
  std::array<std::vector<Meeting>, kSpatial> meetings;
  for (size_t d = 0; d < kSpatial; ++d) meetings[d] = MeetingsOf(p, s, d, position[d]);
  const bool of_data = p.operation() == Operation::kBwdData;
  const bool of_filter = p.operation() == Operation::kBwdFilter;
  // The numbers of channels and filters of a group, and the first of each in the sum.
  const int64_t channels = p.w_dims()[1];
  const int64_t filters = p.w_dims()[0] / p.groups();
  const int64_t group =
      of_data ? coordinates[1] / channels : coordinates[of_filter ? 0 : 1] / filters;
  const int64_t k = of_data ? group * filters : coordinates[of_filter ? 0 : 1];
  const int64_t c = of_data ? coordinates[1] % channels : of_filter ? coordinates[1] : 0;
  const int64_t images = of_filter ? p.x_dims()[0] : 1;
  Accumulator sum(inputs.at(of_data ? kY : kX), inputs.at(of_filter ? kY : kW));
  for (int64_t n = of_filter ? 0 : coordinates[0], end = n + images; n < end; ++n) {
    for (const Meeting& first : meetings[0]) {
      for (const Meeting& second : meetings[1]) {
        for (const Meeting& third : meetings[2]) {
          const auto offset = [&](const Triple& strides, int64_t Meeting::*at) {
            return first.*at * strides[0] + second.*at * strides[1] + third.*at * strides[2];
          };
          const int64_t x = n * p.x_strides()[0] + (group * channels + c) * p.x_strides()[1] +
                            offset(s.x_strides, &Meeting::x);
          const int64_t w =
              k * p.w_strides()[0] + c * p.w_strides()[1] + offset(s.w_strides, &Meeting::w);
          const int64_t y =
              n * p.y_strides()[0] + k * p.y_strides()[1] + offset(s.y_strides, &Meeting::y);
          if (of_filter) {
            // All of the row at once.
            sum.Add(x, s.stride[2] * s.x_strides[2], y, s.y_strides[2],
                    static_cast<int64_t>(meetings[2].size()));
            break;
          }
          if (of_data) {
            sum.Add(y, p.y_strides()[1], w, p.w_strides()[0], filters);
          } else {
            sum.Add(x, p.x_strides()[1], w, p.w_strides()[1], channels);
          }
        }
      }
    }
  }
  return sum;
}

// Returns the argument of the tensor that the operation writes.
const std::vector<int64_t>& OfOutput(Operation operation, const std::vector<int64_t>& x,
                                     const std::vector<int64_t>& w, const std::vector<int64_t>& y) {
  return operation == Operation::kBwdData ? x : operation == Operation::kBwdFilter ? w : y;
}

double At(const TensorValues& values, int64_t offset) {
  return values[static_cast<size_t>(offset) % values.size()];
}

}  // namespace

const std::vector<int64_t>& OutputDims(const ConvProblem& problem) {
  return OfOutput(problem.operation(), problem.x_dims(), problem.w_dims(), problem.y_dims());
}

std::vector<std::vector<int64_t>> ChooseElements(const ConvProblem& problem, int64_t max_products,
                                                 uint64_t seed) {
  const std::vector<int64_t>& dims = OutputDims(problem);
  const int64_t products = std::max<int64_t>(1, ProductsPerElement(problem));
  const int64_t total = ElementCount(dims);
  // A few are worth some more time, but not any.
  const int64_t few = std::min(kFewLargeElements, max_products * kFewLargeElements / products);
  const int64_t count = std::clamp(max_products / products, few, kMostElements);
  std::vector<std::vector<int64_t>> chosen;
  if (total <= count) {
    for (int64_t i = 0; i < total; ++i) {
      std::vector<int64_t> coordinates(dims.size());
      int64_t rest = i;
      for (size_t d = dims.size(); d-- > 0;) {
        coordinates[d] = rest % dims[d];
        rest /= dims[d];
      }
      chosen.push_back(std::move(coordinates));
    }
    return chosen;
  }
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> coordinates;
    for (size_t d = 0; d < dims.size(); ++d) {
      const auto size = static_cast<uint64_t>(dims[d]);
      const uint64_t kind = random() % 8;
      const uint64_t inside = random() % size;
      const bool at_end = d >= 2 && kind < 2;
      coordinates.push_back(static_cast<int64_t>(!at_end     ? inside
                                                 : kind == 0 ? uint64_t{0}
                                                             : size - 1));
    }
    chosen.push_back(std::move(coordinates));
  }
  return chosen;
}

ReferenceElement ComputeElement(const ConvProblem& problem, const ReferenceInputs& inputs,
                                const std::vector<int64_t>& coordinates) {
  const Operation operation = problem.operation();
  const Accumulator sum = SumOf(problem, inputs, coordinates);
  ReferenceElement element;
  const std::vector<int64_t>& strides =
      OfOutput(operation, problem.x_strides(), problem.w_strides(), problem.y_strides());
  for (size_t d = 0; d < coordinates.size(); ++d) element.offset += coordinates[d] * strides[d];
  element.value = sum.sum();
  element.magnitude = sum.magnitude();
  for (const EpilogueOp op : problem.epilogue()) {
    if (op == EpilogueOp::kRelu) {
      element.value = std::max(element.value, 0.0);
      continue;
    }
    const double other = op == EpilogueOp::kAdd
                             ? At(inputs.at(cudnn::TensorRole::kResidual), element.offset)
                             : At(inputs.at(cudnn::TensorRole::kBias), coordinates[1]);
    element.value += other;
    element.magnitude += std::abs(other);
  }
  return element;
}

}  // namespace convtune::worker::verify
