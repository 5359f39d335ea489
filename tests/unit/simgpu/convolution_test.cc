#include "tests/simgpu/cudnn/convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/simgpu/cudnn/element.h"
#include "tests/unit/simgpu/naive_convolution.h"

namespace convtune::simgpu {
namespace {

enum class Layout { kNchw, kNhwc, kGaps };

Tensor MakeTensor(DataType type, const std::array<int64_t, 5>& dims, Layout layout) {
  Tensor tensor;
  tensor.type = type;
  tensor.dims = dims;
  const std::vector<size_t> order = layout == Layout::kNhwc ? std::vector<size_t>{1, 4, 3, 2, 0}
                                                            : std::vector<size_t>{4, 3, 2, 1, 0};
  int64_t stride = layout == Layout::kGaps ? 2 : 1;
  for (const size_t dim : order) {
    tensor.strides[dim] = stride;
    stride = stride * dims[dim] + (layout == Layout::kGaps ? 1 : 0);
  }
  return tensor;
}

std::string Describe(const Convolution& conv) {
  std::string text(Name(conv.operation));
  for (const Tensor* tensor : {&conv.x, &conv.w, &conv.y}) {
    text += " " + std::string(Name(tensor->type)) + ":";
    for (const int64_t dim : tensor->dims) text += std::to_string(dim) + ",";
  }
  for (const auto* list : {&conv.pad, &conv.stride, &conv.dilation}) {
    for (const int64_t value : *list) text += " " + std::to_string(value);
  }
  return text + " groups " + std::to_string(conv.groups) + (conv.flipped ? " flipped" : "");
}

// A convolution of random sizes, most of them with ends that no block divides.
Convolution RandomConvolution(DataType type, std::mt19937* random) {
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(*random);
  };
  Convolution conv;
  conv.operation = static_cast<Operation>(pick(1, 3));
  conv.groups = pick(0, 2) == 0 ? pick(2, 3) : 1;
  conv.flipped = pick(0, 1) == 1;
  const int64_t channels = pick(1, 20);
  const int64_t filters = pick(1, 20);
  std::array<int64_t, 5> x = {pick(1, 3), channels * conv.groups, 1, 1, 1};
  std::array<int64_t, 5> w = {filters * conv.groups, channels, 1, 1, 1};
  std::array<int64_t, 5> y = {x[0], w[0], 1, 1, 1};
  for (size_t i = pick(0, 1) == 0 ? 0 : 1; i < 3; ++i) {
    w[i + 2] = pick(1, 4);
    conv.stride[i] = pick(1, 3);
    conv.dilation[i] = pick(1, 2);
    conv.pad[i] = pick(0, 4);
    const int64_t pad_high = pick(0, 3);
    const int64_t extent = (w[i + 2] - 1) * conv.dilation[i] + 1;
    x[i + 2] = std::max<int64_t>(pick(1, 12), extent - conv.pad[i] - pad_high);
    y[i + 2] = (x[i + 2] + conv.pad[i] + pad_high - extent) / conv.stride[i] + 1;
  }
  const auto layout = [&] { return static_cast<Layout>(pick(0, 2)); };
  conv.x = MakeTensor(type, x, layout());
  conv.w = MakeTensor(type, w, layout());
  conv.y = MakeTensor(type, y, layout());
  return conv;
}

class ConvolutionTest : public testing::TestWithParam<DataType> {};

TEST_P(ConvolutionTest, IsTheSumOfTheDefinition) {
  std::mt19937 random(17);
  for (int i = 0; i < 100; ++i) {
    const Convolution conv = RandomConvolution(GetParam(), &random);
    SCOPED_TRACE(Describe(conv));
    const bool small_integers = i % 2 == 0;
    const Filled x(conv.x, small_integers, &random);
    const Filled w(conv.w, small_integers, &random);
    const Filled y(conv.y, small_integers, &random);
    const std::vector<double> expected = Naive(conv, x, w, y);
    std::vector<double> got;
    if (SumsInDouble(conv)) {
      got = Convolve<double>(conv, x.bytes.data(), w.bytes.data(), y.bytes.data());
    } else {
      const std::vector<float> narrow =
          Convolve<float>(conv, x.bytes.data(), w.bytes.data(), y.bytes.data());
      got.assign(narrow.begin(), narrow.end());
    }
    ASSERT_EQ(got.size(), expected.size());
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    // Sums of integers are exact; others are sums of floats, in another order.
    const double tolerance = small_integers                 ? 0
                             : GetParam() == DataType::kF64 ? 1e-13 * largest
                                                            : 1e-5 * largest;
    for (size_t at = 0; at < expected.size(); ++at) ASSERT_NEAR(got[at], expected[at], tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ConvolutionTest,
                         testing::Values(DataType::kF64, DataType::kF32, DataType::kF16,
                                         DataType::kBF16, DataType::kI8, DataType::kE4M3,
                                         DataType::kE5M2),
                         [](const auto& type) { return std::string(Name(type.param)); });

// Images that are all different, and made in less time than random ones.
std::vector<char> ManyImages(const Tensor& tensor, std::mt19937* random) {
  Tensor one = tensor;
  one.dims[0] = 1;
  const Filled image(one, true, random);
  std::vector<char> all;
  for (int64_t n = 0; n < tensor.dims[0]; ++n) {
    const auto middle = image.bytes.begin() + 2 * n;
    all.insert(all.end(), middle, image.bytes.end());
    all.insert(all.end(), image.bytes.begin(), middle);
  }
  return all;
}

// Large enough for two threads and for more than one chunk of images.
TEST(Convolution, ManyImagesAreTheSameAsEachAlone) {
  std::mt19937 random(3);
  for (const Operation operation : {Operation::kFwd, Operation::kBwdData, Operation::kBwdFilter}) {
    Convolution conv;
    conv.operation = operation;
    conv.pad = {0, 1, 1};
    constexpr int64_t kImages = 40;
    conv.x = MakeTensor(DataType::kF16, {kImages, 64, 1, 96, 96}, Layout::kNhwc);
    conv.y = MakeTensor(DataType::kF16, {kImages, 16, 1, 96, 96}, Layout::kNhwc);
    conv.w = MakeTensor(DataType::kF16, {16, 64, 1, 3, 3}, Layout::kNhwc);
    const Filled w(conv.w, true, &random);
    const std::vector<char> x = ManyImages(conv.x, &random);
    const std::vector<char> y = ManyImages(conv.y, &random);
    const std::vector<float> all = Convolve<float>(conv, x.data(), w.bytes.data(), y.data());
    Convolution one = conv;
    one.x.dims[0] = one.y.dims[0] = 1;
    std::vector<float> sum(all.size());
    for (int64_t n = 0; n < kImages; ++n) {
      const std::vector<float> alone =
          Convolve<float>(one, x.data() + 2 * n * conv.x.strides[0], w.bytes.data(),
                          y.data() + 2 * n * conv.y.strides[0]);
      const size_t at = operation == Operation::kBwdFilter ? 0 : alone.size() * n;
      for (size_t i = 0; i < alone.size(); ++i) sum[at + i] += alone[i];
    }
    EXPECT_EQ(all, sum) << Name(operation);
  }
}

TEST(Convolution, TF32RoundsTheInputs) {
  Convolution conv;
  conv.x = MakeTensor(DataType::kF32, {1, 1, 1, 1, 1}, Layout::kNchw);
  conv.w = conv.y = conv.x;
  const float x = 1 + 0x1p-12F;
  const float w = 3;
  EXPECT_EQ(Convolve<float>(conv, &x, &w, nullptr)[0], 3 * x);
  conv.tf32 = true;
  EXPECT_EQ(Convolve<float>(conv, &x, &w, nullptr)[0], 3);
}

TEST(Element, EachPatternIsItsOwnValue) {
  for (const DataType type :
       {DataType::kF16, DataType::kBF16, DataType::kE4M3, DataType::kE5M2, DataType::kI8}) {
    const uint32_t patterns = SizeOf(type) == 2 ? 65536 : 256;
    for (uint32_t bits = 0; bits < patterns; ++bits) {
      char from[2] = {};
      std::memcpy(from, &bits, 2);
      const double value = DecodeElement(type, from);
      // fp8 saturates, so its infinities are not written.
      if (std::isnan(value) || (type == DataType::kE5M2 && std::isinf(value))) continue;
      char to[2] = {};
      EncodeElement(type, value, to);
      ASSERT_EQ(std::memcmp(from, to, static_cast<size_t>(SizeOf(type))), 0)
          << Name(type) << " " << bits << " " << value;
    }
  }
}

TEST(Element, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(RoundTo(DataType::kF16, 1 + 0x1p-11), 1);
  EXPECT_EQ(RoundTo(DataType::kF16, 1 + 3 * 0x1p-11), 1 + 0x1p-9);
  EXPECT_EQ(RoundTo(DataType::kF16, 65519), 65504);
  EXPECT_TRUE(std::isinf(RoundTo(DataType::kF16, 65520)));
  EXPECT_EQ(RoundTo(DataType::kF16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(RoundTo(DataType::kF16, 0x1.8p-24), 0x1p-23);
  EXPECT_EQ(RoundTo(DataType::kBF16, 1 + 0x1p-8), 1);
  EXPECT_EQ(RoundTo(DataType::kE4M3, 1000), 448);
  EXPECT_EQ(RoundTo(DataType::kE5M2, 1e9), 57344);
  EXPECT_EQ(RoundTo(DataType::kI8, 200.0), 127);
  EXPECT_EQ(RoundTo(DataType::kI8, -2.5), -2);
  EXPECT_TRUE(std::isnan(RoundTo(DataType::kE4M3, NAN)));
}

}  // namespace
}  // namespace convtune::simgpu
