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

// The filter's memory coordinate of tap t: convolution mode flips the filter.
int64_t TapOf(const ConvProblem& problem, int64_t size, int64_t t) {
  return problem.mode() == ConvolutionMode::kConvolution ? size - 1 - t : t;
}

// A pair of offsets of which a product is made, and whose sum is taken along
// one dimension.
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

int64_t Dot(const Triple& a, const Triple& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

template <typename Visit>
void ForEach(const Triple& size, const Visit& visit) {
  Triple at;
  for (at[0] = 0; at[0] < size[0]; ++at[0]) {
    for (at[1] = 0; at[1] < size[1]; ++at[1]) {
      for (at[2] = 0; at[2] < size[2]; ++at[2]) visit(at);
    }
  }
}

// y[n,k,o]: over taps, the channels of k's group.
void Forward(const ConvProblem& p, const Shape& s, int64_t n, int64_t k, const Triple& o,
             Accumulator* sum) {
  const int64_t channels = p.w_dims()[1];
  const int64_t group = k / (p.w_dims()[0] / p.groups());
  ForEach(s.w, [&](const Triple& t) {
    Triple at, tap;
    for (size_t d = 0; d < kSpatial; ++d) {
      at[d] = o[d] * s.stride[d] - s.pad[d] + t[d] * s.dilation[d];
      if (at[d] < 0 || at[d] >= s.x[d]) return;
      tap[d] = TapOf(p, s.w[d], t[d]);
    }
    sum->Add(n * p.x_strides()[0] + group * channels * p.x_strides()[1] + Dot(at, s.x_strides),
             p.x_strides()[1], k * p.w_strides()[0] + Dot(tap, s.w_strides), p.w_strides()[1],
             channels);
  });
}

// dx[n,c,i]: over taps, the filters of c's group.
void BackwardData(const ConvProblem& p, const Shape& s, int64_t n, int64_t c, const Triple& i,
                  Accumulator* sum) {
  const int64_t channels = p.w_dims()[1];
  const int64_t filters = p.w_dims()[0] / p.groups();
  const int64_t first = c / channels * filters;
  ForEach(s.w, [&](const Triple& t) {
    Triple at, tap;
    for (size_t d = 0; d < kSpatial; ++d) {
      const int64_t scaled = i[d] + s.pad[d] - t[d] * s.dilation[d];
      if (scaled < 0 || scaled % s.stride[d] != 0) return;
      at[d] = scaled / s.stride[d];
      if (at[d] >= s.y[d]) return;
      tap[d] = TapOf(p, s.w[d], t[d]);
    }
    sum->Add(n * p.y_strides()[0] + first * p.y_strides()[1] + Dot(at, s.y_strides),
             p.y_strides()[1],
             first * p.w_strides()[0] + c % channels * p.w_strides()[1] + Dot(tap, s.w_strides),
             p.w_strides()[0], filters);
  });
}

// dw[k,c,tap]: over all positions in all images.
void BackwardFilter(const ConvProblem& p, const Shape& s, int64_t k, int64_t c, const Triple& tap,
                    Accumulator* sum) {
  const int64_t group = k / (p.w_dims()[0] / p.groups());
  const int64_t channel = group * p.w_dims()[1] + c;
  Triple first, count;
  Triple at;  // of x, for the first position
  for (size_t d = 0; d < kSpatial; ++d) {
    const int64_t begin = TapOf(p, s.w[d], tap[d]) * s.dilation[d] - s.pad[d];
    first[d] = begin < 0 ? (-begin + s.stride[d] - 1) / s.stride[d] : 0;
    const int64_t room = s.x[d] - 1 - begin;
    const int64_t end = room < 0 ? 0 : std::min(s.y[d], room / s.stride[d] + 1);
    count[d] = end - first[d];
    if (count[d] <= 0) return;
    at[d] = begin + first[d] * s.stride[d];
  }
  const Triple rows = {count[0], count[1], 1};
  for (int64_t n = 0; n < p.x_dims()[0]; ++n) {
    ForEach(rows, [&](const Triple& row) {
      Triple x_at, y_at;
      for (size_t d = 0; d < kSpatial; ++d) {
        x_at[d] = at[d] + row[d] * s.stride[d];
        y_at[d] = first[d] + row[d];
      }
      sum->Add(n * p.x_strides()[0] + channel * p.x_strides()[1] + Dot(x_at, s.x_strides),
               s.stride[2] * s.x_strides[2],
               n * p.y_strides()[0] + k * p.y_strides()[1] + Dot(y_at, s.y_strides), s.y_strides[2],
               count[2]);
    });
  }
}

// Of what x, w and y have, that of the one that the operation writes.
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
  const int64_t few =
      std::min(kFewLargeElements, max_products / products * kFewLargeElements +
                                      max_products % products * kFewLargeElements / products);
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
  const Shape shape(problem);
  const Triple position = Shape::Behind(coordinates, 2, 0);
  const Operation operation = problem.operation();
  Accumulator sum(operation == Operation::kBwdData ? inputs.y : inputs.x,
                  operation == Operation::kBwdFilter ? inputs.y : inputs.w);
  switch (operation) {
    case Operation::kFwd:
      Forward(problem, shape, coordinates[0], coordinates[1], position, &sum);
      break;
    case Operation::kBwdData:
      BackwardData(problem, shape, coordinates[0], coordinates[1], position, &sum);
      break;
    case Operation::kBwdFilter:
      BackwardFilter(problem, shape, coordinates[0], coordinates[1], position, &sum);
      break;
  }
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
    const double other = op == EpilogueOp::kAdd ? At(inputs.residual, element.offset)
                                                : At(inputs.bias, coordinates[1]);
    element.value += other;
    element.magnitude += std::abs(other);
  }
  return element;
}

}  // namespace convtune::worker::verify
