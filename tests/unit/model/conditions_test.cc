#include "proto/model/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Conditions Known() {
  Conditions conditions;
  conditions.known = true;
  return conditions;
}

TEST(ConditionsTest, WhatIsNotKnownMarksNothing) {
  Conditions conditions;
  conditions.other_processes = 3;
  EXPECT_TRUE(conditions.clean());
  EXPECT_THAT(Marks(conditions), IsEmpty());
}

TEST(ConditionsTest, APowerCapIsNoThrottling) {
  Conditions conditions = Known();
  conditions.clock_reasons = static_cast<uint32_t>(ClockReason::kPowerCap);
  EXPECT_TRUE(conditions.clean());
}

TEST(ConditionsTest, MarksNameWhatIsWrong) {
  Conditions conditions = Known();
  conditions.other_processes = 1;
  conditions.mps = true;
  conditions.clock_reasons = static_cast<uint32_t>(ClockReason::kThermalSlowdown) |
                             static_cast<uint32_t>(ClockReason::kPowerCap);
  conditions.ecc_errors = 2;
  EXPECT_FALSE(conditions.clean());
  EXPECT_THAT(
      Marks(conditions),
      ElementsAre("contended: 1 other process on the GPU", "contended: an MPS server has the GPU",
                  "throttled: thermal slowdown", "uncorrected ECC errors: 2"));
}

TEST(ConditionsTest, MergeKeepsTheWorstOfAllLooks) {
  Conditions all;
  Merge(Conditions(), &all);
  EXPECT_FALSE(all.known);
  Conditions first = Known();
  first.other_processes = 2;
  first.clock_reasons = 0x4;
  first.temperature_celsius = 50;
  Conditions second = Known();
  second.clock_reasons = 0x20;
  second.temperature_celsius = 40;
  second.compute_mode = ComputeMode::kExclusiveProcess;
  Merge(first, &all);
  Merge(second, &all);
  Merge(Conditions(), &all);
  EXPECT_TRUE(all.known);
  EXPECT_EQ(all.other_processes, 2);
  EXPECT_EQ(all.clock_reasons, 0x24U);
  EXPECT_EQ(all.temperature_celsius, 50);
  EXPECT_EQ(all.compute_mode, ComputeMode::kExclusiveProcess);
}

}  // namespace
}  // namespace convtune
