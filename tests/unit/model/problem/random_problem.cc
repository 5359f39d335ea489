#include "tests/unit/model/problem/random_problem.h"

#include <algorithm>
#include <numeric>

namespace convtune {
namespace {

using enum DataType;

int64_t Draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

bool OneIn(std::mt19937_64& random, int n) { return Draw(random, 1, n) == 1; }

template <typename T>
T Pick(std::mt19937_64& random, const std::vector<T>& values) {
  return values[Draw(random, 0, static_cast<int64_t>(values.size()) - 1)];
}

std::vector<int64_t> RandomStrides(std::mt19937_64& random, const std::vector<int64_t>& dims) {
  std::vector<size_t> order(dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int64_t> strides(dims.size());
  int64_t next = 1;
  for (const size_t i : order) {
    if (dims[i] == 1) {
      strides[i] = Draw(random, 1, 1000);
      continue;
    }
    strides[i] = next;
    next = next * dims[i] + (OneIn(random, 3) ? Draw(random, 0, 9) : 0);
  }
  return strides;
}

void AddTypes(std::mt19937_64& random, ConvProblemSpec* spec) {
  const DataType data = Pick<DataType>(random, {kF64, kF32, kF16, kBF16, kI8, kE4M3, kE5M2});
  if (data == kI8) spec->operation = Operation::kFwd;
  if (data != kF32 || OneIn(random, 2)) spec->data_type = data;
  const bool fp8 = data == kE4M3 || data == kE5M2;
  if (OneIn(random, 2)) {
    spec->output_type = data == kF16 || data == kBF16 ? Pick<DataType>(random, {data, kF32})
                        : data == kI8                 ? Pick<DataType>(random, {kI8, kI32, kF32})
                        : fp8 ? Pick<DataType>(random, {kE4M3, kE5M2, kF16, kBF16, kF32})
                              : data;
  }
  if (OneIn(random, 2)) {
    spec->compute_type = data == kF64   ? kF64
                         : data == kF16 ? Pick<DataType>(random, {kF32, kF16})
                         : data == kI8  ? kI32
                                        : kF32;
  }
  if (spec->operation != Operation::kFwd || OneIn(random, 2)) return;
  using enum EpilogueOp;
  spec->epilogue =
      Pick<std::vector<EpilogueOp>>(random, {{kBias}, {kBias, kRelu}, {kAdd, kBias, kRelu}});
  if (OneIn(random, 2)) {
    spec->intermediate_type = data == kF64 ? kF64 : Pick<DataType>(random, {kF32, data});
  }
}

}  // namespace

ConvProblemSpec RandomValidSpec(std::mt19937_64& random) {
  ConvProblemSpec spec;
  spec.operation = static_cast<Operation>(Draw(random, 1, 3));
  AddTypes(random, &spec);

  const int64_t rank = Draw(random, 1, 3);
  const int64_t groups = OneIn(random, 3) ? Draw(random, 1, 8) : 1;
  if (groups > 1 || OneIn(random, 2)) spec.groups = groups;
  const int64_t channels = Draw(random, 1, 9);
  const int64_t filters = groups * Draw(random, 1, 9);
  spec.x_dims = {Draw(random, 1, 40), groups * channels};
  spec.w_dims = {filters, channels};
  std::vector<int64_t> y_dims = {spec.x_dims[0], filters};
  const bool asymmetric = OneIn(random, 3);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t filter = Draw(random, 1, 5);
    const int64_t dilation = Draw(random, 1, 3);
    const int64_t low = Draw(random, 0, 4);
    const int64_t high = asymmetric ? Draw(random, 0, 4) : low;
    const int64_t stride = Draw(random, 1, 3);
    const int64_t span = dilation * (filter - 1) + 1;
    const int64_t size = std::max<int64_t>(1, span - low - high) + Draw(random, 0, 30);
    spec.x_dims.push_back(size);
    spec.w_dims.push_back(filter);
    spec.pad_low.push_back(low);
    if (asymmetric) spec.pad_high.push_back(high);
    spec.strides.push_back(stride);
    spec.dilations.push_back(dilation);
    y_dims.push_back((size + low + high - span) / stride + 1);
  }
  switch (Draw(random, 1, 4)) {
    case 1:
      spec.layout = TensorLayout::kNchw;
      break;
    case 2:
      spec.layout = TensorLayout::kNhwc;
      break;
    case 3:
      spec.x_strides = RandomStrides(random, spec.x_dims);
      spec.w_strides = RandomStrides(random, spec.w_dims);
      spec.y_strides = RandomStrides(random, y_dims);
      if (OneIn(random, 2)) spec.layout = TensorLayout::kStrided;
      break;
    default:
      break;
  }
  if (OneIn(random, 4)) spec.mode = static_cast<ConvolutionMode>(Draw(random, 1, 2));
  if (OneIn(random, 4)) spec.alignment_bytes = int64_t{1} << Draw(random, 0, 8);
  if (OneIn(random, 4)) spec.sm_count_target = Draw(random, 0, 1024);
  return spec;
}

}  // namespace convtune
