#include "server/worker/verify/tensor_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace convtune::worker::verify {
namespace {

uint16_t Half(float value) { return EncodeSmallFloat(value, {5, 10, true}); }
uint16_t E4M3(float value) { return EncodeSmallFloat(value, {4, 3, false}); }
uint16_t E5M2(float value) { return EncodeSmallFloat(value, {5, 2, true}); }

// The bit patterns are those of IEEE 754 and of the OCP 8-bit floating-point
// specification.
TEST(EncodeSmallFloatTest, ExactValues) {
  EXPECT_EQ(Half(0.0F), 0x0000);
  EXPECT_EQ(Half(1.0F), 0x3C00);
  EXPECT_EQ(Half(-2.0F), 0xC000);
  EXPECT_EQ(Half(65504.0F), 0x7BFF);
  EXPECT_EQ(EncodeSmallFloat(1.0F, {8, 7, true}), 0x3F80);
  EXPECT_EQ(E4M3(1.0F), 0x38);
  EXPECT_EQ(E4M3(448.0F), 0x7E);
  EXPECT_EQ(E5M2(-1.5F), 0xBE);
  EXPECT_EQ(E5M2(57344.0F), 0x7B);
}

TEST(EncodeSmallFloatTest, RoundsToNearestWithTiesToEven) {
  EXPECT_EQ(Half(1.0F + 0x1p-11F), 0x3C00);
  EXPECT_EQ(Half(1.0F + 3 * 0x1p-11F), 0x3C02);
  EXPECT_EQ(Half(1.0F + 0x1.1p-11F), 0x3C01);
  EXPECT_EQ(E4M3(1.9999F), 0x40);
}

TEST(EncodeSmallFloatTest, UnderflowsGradually) {
  EXPECT_EQ(Half(0x1p-24F), 0x0001);
  EXPECT_EQ(Half(0x1p-14F), 0x0400);
  EXPECT_EQ(Half(0x1p-26F), 0x0000);
  EXPECT_EQ(E4M3(0x1p-9F), 0x01);
}

TEST(EncodeSmallFloatTest, LargeValuesBecomeTheLargestFinite) {
  EXPECT_EQ(Half(1e9F), 0x7BFF);
  EXPECT_EQ(E4M3(-1000.0F), 0xFE);
  EXPECT_EQ(E5M2(1e9F), 0x7B);
}

TEST(DecodeSmallFloatTest, EveryFinitePatternComesBackFromItsValue) {
  for (const FloatFormat& f : {FloatFormat{5, 10}, {8, 7}, {4, 3, false}, {5, 2}}) {
    const int bits = 1 + f.exponent_bits + f.mantissa_bits;
    for (uint32_t pattern = 0; pattern < 1U << bits; ++pattern) {
      const double value = DecodeSmallFloat(static_cast<uint16_t>(pattern), f);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(EncodeSmallFloat(static_cast<float>(value), f), pattern);
    }
  }
}

TEST(DecodeSmallFloatTest, InfinityAndNan) {
  EXPECT_EQ(DecodeSmallFloat(0x7C00, {5, 10, true}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(DecodeSmallFloat(0xFC, {5, 2, true}), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(0x7C01, {5, 10, true})));
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(0xFF, {4, 3, false})));
  EXPECT_EQ(DecodeSmallFloat(0x78, {4, 3, false}), 256.0);
}

TEST(LargestOfTest, IsThatOfTheFormat) {
  EXPECT_EQ(LargestOf(DataType::kF16), 65504.0);
  EXPECT_EQ(LargestOf(DataType::kE4M3), 448.0);
  EXPECT_EQ(LargestOf(DataType::kE5M2), 57344.0);
  EXPECT_EQ(LargestOf(DataType::kI8), 127.0);
}

TEST(RandomTensorBytesTest, SameArgumentsGiveTheSameBytes) {
  EXPECT_EQ(RandomTensorBytes(DataType::kF16, 1000, TensorContent::kRectified, 7),
            RandomTensorBytes(DataType::kF16, 1000, TensorContent::kRectified, 7));
  EXPECT_NE(RandomTensorBytes(DataType::kF16, 1000, TensorContent::kRectified, 7),
            RandomTensorBytes(DataType::kF16, 1000, TensorContent::kRectified, 8));
}

TEST(RandomTensorBytesTest, HalfIsZeroAndOfTheOthersSomeAreNegativeOnlyWhereItIsMasked) {
  for (const TensorContent content : {TensorContent::kRectified, TensorContent::kMasked}) {
    const std::vector<double> values =
        DecodeElements(DataType::kF32, RandomTensorBytes(DataType::kF32, 10000, content, 1));
    const auto zeros = std::count(values.begin(), values.end(), 0.0);
    const auto negative =
        std::count_if(values.begin(), values.end(), [](double v) { return v < 0; });
    EXPECT_NEAR(static_cast<double>(zeros), 5000, 300);
    EXPECT_NEAR(static_cast<double>(negative), content == TensorContent::kMasked ? 2500 : 0, 300);
    EXPECT_EQ(negative == 0, content == TensorContent::kRectified);
  }
}

TEST(RandomTensorBytesTest, EveryTypeHasItsSizeAndIsNotAllZero) {
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16,
                              DataType::kI8, DataType::kI32, DataType::kE4M3, DataType::kE5M2}) {
    const std::string bytes = RandomTensorBytes(type, 256, TensorContent::kRectified, 1);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), 256 * SizeOf(type));
    EXPECT_GT(std::count_if(bytes.begin(), bytes.end(), [](char c) { return c != 0; }), 60);
  }
}

TEST(IntegerScaleOfTest, TheIntegersHaveThatMeanSquare) {
  for (const double wanted : {0.01, 0.1, 0.5, 2.0, 30.0, 500.0}) {
    const std::string bytes = RandomTensorBytes(DataType::kI8, 200'000, TensorContent::kNormal, 1,
                                                IntegerScaleOf(wanted));
    double sum = 0;
    for (const double value : DecodeElements(DataType::kI8, bytes)) sum += value * value;
    EXPECT_NEAR(sum / 200'000, wanted, 0.05 * wanted);
  }
}

TEST(IntegerScaleOfTest, IsWideAtMost) { EXPECT_NEAR(IntegerScaleOf(1e6), kWideIntegers, 1e-6); }

TEST(DecodeElementsTest, GivesWhatEachElementIs) {
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16,
                              DataType::kE4M3, DataType::kE5M2, DataType::kI8, DataType::kI32}) {
    for (const int64_t count : {0, 7, 70000}) {
      const std::string bytes = RandomTensorBytes(type, count, TensorContent::kNormal, 1);
      const std::vector<double> values = DecodeElements(type, bytes);
      ASSERT_EQ(values.size(), static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) {
        const char* const element = bytes.data() + i * static_cast<size_t>(SizeOf(type));
        ASSERT_EQ(values[i], DecodeElement(type, element)) << Name(type);
      }
    }
  }
}

}  // namespace
}  // namespace convtune::worker::verify
