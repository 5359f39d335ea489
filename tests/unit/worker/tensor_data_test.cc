#include "server/worker/tensor_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace convtune {
namespace {

uint16_t Half(float value) { return EncodeSmallFloat(value, 5, 10, true); }
uint16_t E4M3(float value) { return EncodeSmallFloat(value, 4, 3, false); }
uint16_t E5M2(float value) { return EncodeSmallFloat(value, 5, 2, true); }

// The bit patterns are those of IEEE 754 and of the OCP 8-bit floating-point
// specification.
TEST(EncodeSmallFloatTest, ExactValues) {
  EXPECT_EQ(Half(0.0F), 0x0000);
  EXPECT_EQ(Half(1.0F), 0x3C00);
  EXPECT_EQ(Half(-2.0F), 0xC000);
  EXPECT_EQ(Half(65504.0F), 0x7BFF);
  EXPECT_EQ(EncodeSmallFloat(1.0F, 8, 7, true), 0x3F80);
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

TEST(RandomTensorBytesTest, SameArgumentsGiveTheSameBytes) {
  EXPECT_EQ(RandomTensorBytes(DataType::kF16, 1000, true, 7),
            RandomTensorBytes(DataType::kF16, 1000, true, 7));
  EXPECT_NE(RandomTensorBytes(DataType::kF16, 1000, true, 7),
            RandomTensorBytes(DataType::kF16, 1000, true, 8));
}

TEST(RandomTensorBytesTest, RectifiedValuesAreZeroForAboutHalf) {
  const std::string bytes = RandomTensorBytes(DataType::kF32, 10000, true, 1);
  std::vector<float> values(10000);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  EXPECT_EQ(std::count_if(values.begin(), values.end(), [](float v) { return v < 0; }), 0);
  const auto zeros = std::count(values.begin(), values.end(), 0.0F);
  EXPECT_GT(zeros, 4700);
  EXPECT_LT(zeros, 5300);
}

TEST(RandomTensorBytesTest, EveryTypeHasItsSizeAndIsNotAllZero) {
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16,
                              DataType::kI8, DataType::kI32, DataType::kE4M3, DataType::kE5M2}) {
    const std::string bytes = RandomTensorBytes(type, 256, true, 1);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), 256 * SizeOf(type));
    EXPECT_GT(std::count_if(bytes.begin(), bytes.end(), [](char c) { return c != 0; }), 60);
  }
}

}  // namespace
}  // namespace convtune
