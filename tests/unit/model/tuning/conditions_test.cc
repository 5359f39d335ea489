#include "proto/model/tuning/conditions.h"

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

TEST(ConditionsTest, MergeKeepsHowTheRunsWentAlsoOfACardThatIsNotKnown) {
  Conditions all;
  Conditions look;
  look.retried_runs = 2;
  look.unblocked = "launches, after eng1, eng2, eng3 gave up";
  Merge(look, &all);
  Merge(Known(), &all);
  EXPECT_EQ(all.retried_runs, 2);
  EXPECT_EQ(all.unblocked, look.unblocked);
  EXPECT_TRUE(all.known);
  look.unblocked += "; replays, after eng1, eng2, eng3 gave up";
  Merge(look, &all);
  EXPECT_EQ(all.unblocked, look.unblocked);
}

TEST(ConditionsTest, MergeKeepsWhatAnySelfCheckFoundBrokenAlsoOfACardThatIsNotKnown) {
  Conditions all;
  all.self_check = 1;
  Conditions look = Known();
  look.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kCaches);
  Merge(Known(), &all);
  EXPECT_EQ(all.self_check, 1U);
  Merge(look, &all);
  Conditions unknown;
  unknown.self_check = 1 | static_cast<uint32_t>(SelfCheckBit::kClock);
  Merge(unknown, &all);
  EXPECT_TRUE(all.known);
  EXPECT_EQ(FailedInstruments(all.self_check), (std::vector<std::string>{"clock", "caches"}));
}

TEST(SelfCheckTest, AnInstrumentWorksUnlessItWasFoundNotTo) {
  EXPECT_FALSE(SelfCheck().known());
  EXPECT_TRUE(SelfCheck().works(SelfCheckBit::kClock));
  const SelfCheck check{
      MaskOf(SelfCheckBit::kRun) | MaskOf(SelfCheckBit::kClock) | MaskOf(SelfCheckBit::kCaptures),
      ""};
  EXPECT_TRUE(check.known());
  EXPECT_FALSE(check.works(SelfCheckBit::kClock));
  EXPECT_TRUE(check.works(SelfCheckBit::kChecker));
  EXPECT_EQ(FailedInstruments(check.mask), (std::vector<std::string>{"clock", "captures"}));
}

// They are persisted: their numbers never change.
TEST(SelfCheckTest, BitsAreWhatFilesHave) {
  EXPECT_EQ(MaskOfFailed(FailedInstruments(0xFFFFFFFF)), 0xFCFC003FU);
  EXPECT_EQ(SelfCheckSteps(), 0x3EU);
  // Old tunings name these.
  const std::vector<std::string> retired = {"graph:fwd:f32", "legacy:bwd_filter:f16"};
  const uint32_t mask = uint32_t{1} << 18 | uint32_t{1} << 31;
  EXPECT_EQ(FailedInstruments(mask), retired);
  EXPECT_EQ(MaskOfFailed(retired), mask | 1U);
}

}  // namespace
}  // namespace convtune
