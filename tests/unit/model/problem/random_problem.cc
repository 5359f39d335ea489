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

v1::DataType ToProto(DataType type) { return static_cast<v1::DataType>(type); }

void AddTypes(std::mt19937_64& random, v1::ConvProblem* spec) {
  const DataType data = Pick<DataType>(random, {kF64, kF32, kF16, kBF16, kI8, kE4M3, kE5M2});
  if (data == kI8) spec->set_operation(v1::OPERATION_FWD);
  if (data != kF32 || OneIn(random, 2)) spec->set_data_type(ToProto(data));
  const bool fp8 = data == kE4M3 || data == kE5M2;
  if (OneIn(random, 2)) {
    spec->set_output_type(ToProto(data == kF16 || data == kBF16
                                      ? Pick<DataType>(random, {data, kF32})
                                  : data == kI8 ? Pick<DataType>(random, {kI8, kI32, kF32})
                                  : fp8 ? Pick<DataType>(random, {kE4M3, kE5M2, kF16, kBF16, kF32})
                                        : data));
  }
  if (OneIn(random, 2)) {
    spec->set_compute_type(ToProto(data == kF64   ? kF64
                                   : data == kF16 ? Pick<DataType>(random, {kF32, kF16})
                                   : data == kI8  ? kI32
                                                  : kF32));
  }
  if (spec->operation() != v1::OPERATION_FWD || OneIn(random, 2)) return;
  using enum EpilogueOp;
  for (const EpilogueOp op :
       Pick<std::vector<EpilogueOp>>(random, {{kBias}, {kBias, kRelu}, {kAdd, kBias, kRelu}})) {
    spec->add_epilogue(static_cast<v1::EpilogueOp>(op));
  }
  if (OneIn(random, 2)) {
    spec->set_intermediate_type(
        ToProto(data == kF64 ? kF64 : Pick<DataType>(random, {kF32, data})));
  }
}

}  // namespace

v1::ConvProblem RandomValidSpec(std::mt19937_64& random) {
  v1::ConvProblem spec;
  spec.set_operation(static_cast<v1::Operation>(Draw(random, 1, 3)));
  AddTypes(random, &spec);

  const int64_t rank = Draw(random, 1, 3);
  const int64_t groups = OneIn(random, 3) ? Draw(random, 1, 8) : 1;
  if (groups > 1 || OneIn(random, 2)) spec.set_groups(groups);
  const int64_t channels = Draw(random, 1, 9);
  const int64_t filters = groups * Draw(random, 1, 9);
  std::vector<int64_t> x_dims = {Draw(random, 1, 40), groups * channels};
  std::vector<int64_t> w_dims = {filters, channels};
  std::vector<int64_t> y_dims = {x_dims[0], filters};
  const bool asymmetric = OneIn(random, 3);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t filter = Draw(random, 1, 5);
    const int64_t dilation = Draw(random, 1, 3);
    const int64_t low = Draw(random, 0, 4);
    const int64_t high = asymmetric ? Draw(random, 0, 4) : low;
    const int64_t stride = Draw(random, 1, 3);
    const int64_t span = dilation * (filter - 1) + 1;
    const int64_t size = std::max<int64_t>(1, span - low - high) + Draw(random, 0, 30);
    x_dims.push_back(size);
    w_dims.push_back(filter);
    spec.add_pad_low(low);
    if (asymmetric) spec.add_pad_high(high);
    spec.add_strides(stride);
    spec.add_dilations(dilation);
    y_dims.push_back((size + low + high - span) / stride + 1);
  }
  spec.mutable_x_dims()->Add(x_dims.begin(), x_dims.end());
  spec.mutable_w_dims()->Add(w_dims.begin(), w_dims.end());
  const auto add_strides = [&](const std::vector<int64_t>& dims, auto* out) {
    const std::vector<int64_t> strides = RandomStrides(random, dims);
    out->Add(strides.begin(), strides.end());
  };
  switch (Draw(random, 1, 4)) {
    case 1:
      spec.set_layout(v1::TENSOR_LAYOUT_NCHW);
      break;
    case 2:
      spec.set_layout(v1::TENSOR_LAYOUT_NHWC);
      break;
    case 3:
      add_strides(x_dims, spec.mutable_x_strides());
      add_strides(w_dims, spec.mutable_w_strides());
      add_strides(y_dims, spec.mutable_y_strides());
      if (OneIn(random, 2)) spec.set_layout(v1::TENSOR_LAYOUT_STRIDED);
      break;
    default:
      break;
  }
  if (OneIn(random, 4)) spec.set_mode(static_cast<v1::ConvolutionMode>(Draw(random, 1, 2)));
  if (OneIn(random, 4)) spec.set_alignment_bytes(1 << Draw(random, 0, 8));
  if (OneIn(random, 4)) spec.set_sm_count_target(static_cast<int>(Draw(random, 0, 1024)));
  return spec;
}

}  // namespace convtune
