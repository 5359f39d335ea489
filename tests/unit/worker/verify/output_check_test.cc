#include "server/worker/verify/output_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "server/worker/device/device_memory.h"
#include "server/worker/verify/tensor_data.h"

namespace convtune::worker::verify {
namespace {

std::vector<ReferenceElement> Reference(std::vector<double> values) {
  std::vector<ReferenceElement> elements;
  for (const double value : values) elements.push_back({0, value, 2 * std::abs(value)});
  return elements;
}

template <typename T>
std::string Bytes(std::vector<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(CompareElementsTest, ErrorIsInUnitsOfTheLargestReference) {
  const Comparison result =
      CompareElements(Reference({1, -4, 2}), DataType::kF32, Bytes<float>({1.5F, -4.25F, 2.0F}));
  EXPECT_DOUBLE_EQ(*result.error, 0.125);
  EXPECT_DOUBLE_EQ(result.magnitude, 2);
  EXPECT_TRUE(result.must_be_finite);
}

TEST(CompareElementsTest, WhatIsNotFiniteIsInfinitelyFar) {
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const Comparison result =
        CompareElements(Reference({1, 1}), DataType::kF32, Bytes<float>({value, 1}));
    EXPECT_EQ(*result.error, std::numeric_limits<double>::infinity());
  }
}

TEST(CompareElementsTest, ReferencesBeyondTheTypeAreLeftOut) {
  const Comparison result =
      CompareElements(Reference({1e6, 2}), DataType::kF16, Bytes<uint16_t>({0x7C00, 0x4000}));
  EXPECT_EQ(*result.error, 0);
  EXPECT_FALSE(result.must_be_finite);
  EXPECT_EQ(CompareElements(Reference({1e6}), DataType::kF16, Bytes<uint16_t>({0x7C00})).error,
            std::nullopt);
}

TEST(CompareElementsTest, OfNothingNothingIsSaid) {
  const Comparison result = CompareElements({}, DataType::kF32, "");
  EXPECT_FALSE(result.error.has_value());
  EXPECT_FALSE(result.must_be_finite);
}

TEST(CompareElementsTest, LittleRoomIsNoReasonToBeFinite) {
  EXPECT_TRUE(CompareElements(Reference({16376}), DataType::kF16, Bytes<uint16_t>({0x7000}))
                  .must_be_finite);
  EXPECT_FALSE(CompareElements(Reference({16377}), DataType::kF16, Bytes<uint16_t>({0x7000}))
                   .must_be_finite);
}

TEST(CompareElementsTest, IntegersSaturate) {
  const Comparison result =
      CompareElements(Reference({500, -500, 7}), DataType::kI8, Bytes<int8_t>({127, -128, 7}));
  EXPECT_EQ(*result.error, 0);
  EXPECT_FALSE(result.must_be_finite);
}

TEST(CompareElementsTest, OfAReferenceOfZerosTheErrorIsTheDifference) {
  EXPECT_EQ(*CompareElements(Reference({0, 0}), DataType::kF32, Bytes<float>({0, 0.5F})).error,
            0.5);
}

std::string Disagree(const Comparison& first, const Comparison& second,
                     DataType type = DataType::kF32) {
  return Disagreement(type, first, second);
}

TEST(DisagreementTest, AllowsForAnotherOrderOfAdding) {
  const Comparison first{1e-4, 1, true, 2048, 0};
  EXPECT_EQ(Disagree(first, {2e-4, 1, true, 2048, 0}), "");
  EXPECT_EQ(Disagree(first, {2.1e-4, 1, true, 2048, 0}), "its error is 0.00021, and was 0.0001");
  EXPECT_EQ(Disagree({0.0, 1, true, 2048, 0}, {1e-6, 1, true, 2048, 0}), "");
}

TEST(DisagreementTest, TheLargestOfFewErrorsMayVaryMore) {
  const Comparison few{1e-4, 1, true, 8, 0};
  EXPECT_EQ(Disagree(few, {8e-4, 1, true, 8, 0}), "");
  EXPECT_NE(Disagree(few, {8.1e-4, 1, true, 8, 0}), "");
}

TEST(DisagreementTest, ARoundingMoreOrLessIsNone) {
  const Comparison exact{0.0, 1, true, 2048, 0};
  EXPECT_EQ(Disagree(exact, {0x1p-10, 1, true, 2048, 0}, DataType::kF16), "");
  EXPECT_NE(Disagree(exact, {0x1.1p-10, 1, true, 2048, 0}, DataType::kF16), "");
  EXPECT_NE(Disagree(exact, {0x1p-10, 1, true, 2048, 0}, DataType::kF32), "");
}

TEST(DisagreementTest, LongSumsMayRoundMore) {
  EXPECT_EQ(Disagree({1e-6, 256, true, 8, 0}, {0x1p-12, 256, true, 8, 0}), "");
  EXPECT_NE(Disagree({1e-6, 255, true, 8, 0}, {0x1p-12, 256, true, 8, 0}), "");
}

TEST(DisagreementTest, WhatIsNotComputedIsFound) {
  const Comparison first{1e-4, 1, true, 8, 0};
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Disagree(first, {infinity, 1, true, 8, 0}), "its error is inf, and was 0.0001");
  EXPECT_NE(Disagree(first, {1.0, 1, true, 8, 0}, DataType::kE5M2), "");
  EXPECT_EQ(Disagree(first, {1e-4, 1, true, 8, 1}), "1 elements are not finite, and 0 were");
  EXPECT_EQ(Disagree(first, {std::nullopt, 0, true, 0, 0}), "no element can be compared any more");
  EXPECT_EQ(Disagree({std::nullopt, 0, true, 0, 3}, {std::nullopt, 0, true, 0, 3}), "");
}

TEST(NonfiniteMaskTest, PicksJustWhatIsNotFinite) {
  struct Format {
    DataType type;
    int bits;
  };
  for (const Format& f : {Format{DataType::kF16, 16},
                          {DataType::kBF16, 16},
                          {DataType::kE4M3, 8},
                          {DataType::kE5M2, 8}}) {
    const uint64_t mask = NonfiniteMask(f.type);
    for (uint64_t pattern = 0; pattern < uint64_t{1} << f.bits; ++pattern) {
      char bytes[sizeof(pattern)];
      std::memcpy(bytes, &pattern, sizeof(pattern));
      ASSERT_EQ((pattern & mask) == mask, !std::isfinite(DecodeElement(f.type, bytes)))
          << Name(f.type) << " " << pattern;
    }
  }
}

template <typename Bits, typename T>
void ExpectMaskOf(DataType type, T largest) {
  for (const T value :
       {T{1}, largest, std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
    const uint64_t mask = NonfiniteMask(type);
    EXPECT_EQ((std::bit_cast<Bits>(value) & mask) == mask, !std::isfinite(value)) << value;
  }
}

TEST(NonfiniteMaskTest, OfWiderTypes) {
  ExpectMaskOf<uint32_t>(DataType::kF32, 3e38F);
  ExpectMaskOf<uint64_t>(DataType::kF64, 1e308);
}

TEST(NonfiniteMaskTest, UntouchedMemoryIsNanInEveryFloatingPointType) {
  for (const DataType type : {DataType::kF64, DataType::kF32, DataType::kF16, DataType::kBF16,
                              DataType::kE4M3, DataType::kE5M2}) {
    const std::string bytes(8, static_cast<char>(device::kUntouched));
    EXPECT_TRUE(std::isnan(DecodeElement(type, bytes.data()))) << Name(type);
  }
}

}  // namespace
}  // namespace convtune::worker::verify
