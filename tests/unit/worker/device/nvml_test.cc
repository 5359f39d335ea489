// Against tests/fakes/fake_nvml.c, which stands in for the driver's library.
#include "server/worker/device/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace convtune::worker::device {
namespace {

constexpr char kDevice[] = "0000:01:00.0";

ConditionsLook LookAt(const char* card) {
  setenv("CONVTUNE_FAKE_NVML", card, 1);
  auto nvml = Nvml::Open(kDevice);
  EXPECT_TRUE(nvml.ok()) << nvml.status();
  return nvml.ok() ? (*nvml)->Look() : ConditionsLook();
}

TEST(NvmlTest, ReadsEverythingOfTheCard) {
  const Conditions conditions =
      LookAt("processes=0,own=1,reasons=36,limit=700500,temperature=61,ecc=2,mode=3").conditions;
  EXPECT_TRUE(conditions.known);
  EXPECT_EQ(conditions.other_processes, 0);
  EXPECT_EQ(conditions.clock_reasons, 36U);
  EXPECT_TRUE(conditions.throttled());
  EXPECT_EQ(conditions.power_limit_watts, 700.5);
  EXPECT_EQ(conditions.temperature_celsius, 61);
  EXPECT_EQ(conditions.ecc_errors, 2);
  EXPECT_EQ(conditions.compute_mode, ComputeMode::kExclusiveProcess);
  EXPECT_FALSE(conditions.mig);
  EXPECT_FALSE(conditions.mps);
}

TEST(NvmlTest, CountsOtherProcessesAndNotItself) {
  EXPECT_EQ(LookAt("processes=2,own=1").conditions.other_processes, 2);
}

TEST(NvmlTest, InAContainerItsOwnNumberMayBeAnother) {
  EXPECT_EQ(LookAt("processes=1,own=0").conditions.other_processes, 0);
  EXPECT_EQ(LookAt("processes=3,own=0").conditions.other_processes, 2);
}

TEST(NvmlTest, ListsMoreProcessesThanItAskedForAtFirst) {
  EXPECT_EQ(LookAt("processes=300,own=1").conditions.other_processes, 300);
}

TEST(NvmlTest, UnderMigProcessesOfOtherInstancesDoNotCount) {
  const Conditions conditions = LookAt("processes=2,own=1,mig=1").conditions;
  EXPECT_TRUE(conditions.mig);
  EXPECT_EQ(conditions.other_processes, 0);
}

TEST(NvmlTest, ClientsOfAnMpsServerMeanThatItHasTheCard) {
  EXPECT_TRUE(LookAt("own=1,mps=1").conditions.mps);
}

TEST(NvmlTest, AListWithoutEvenThisProcessSaysNothingOfOthers) {
  EXPECT_EQ(LookAt("processes=0,own=0").unknown_reason,
            "NVML lists no process of the GPU, not even this one");
  EXPECT_EQ(LookAt("processes=0,own=1").unknown_reason, "");
  EXPECT_EQ(LookAt("processes=0,own=0,mig=1").unknown_reason, "");
  EXPECT_EQ(LookAt("processes=0,own=0,mps=1").unknown_reason, "");
}

TEST(NvmlTest, AListWithoutEvenThisProcessHidesNothingElse) {
  const Conditions conditions =
      LookAt("processes=0,own=0,reasons=32,limit=700000,temperature=61,ecc=2").conditions;
  EXPECT_TRUE(conditions.known);
  EXPECT_EQ(conditions.power_limit_watts, 700);
  EXPECT_EQ(conditions.temperature_celsius, 61);
  EXPECT_FALSE(conditions.contended());
  EXPECT_THAT(Marks(conditions),
              testing::ElementsAre("throttled: thermal slowdown", "uncorrected ECC errors: 2"));
}

TEST(NvmlTest, SaysForHowLongTheClocksWereKeptDown) {
  const ConditionsLook look = LookAt("own=1,hot=5000000000,capped=7");
  EXPECT_EQ(look.hot_ns, 5'000'000'000);
  EXPECT_EQ(look.capped_ns, 7);
}

TEST(NvmlTest, SettingsAreAskedForWhenTold) {
  setenv("CONVTUNE_FAKE_NVML", "own=1,limit=300000,ecc=0", 1);
  auto nvml = Nvml::Open(kDevice);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  setenv("CONVTUNE_FAKE_NVML", "own=1,limit=200000,ecc=1,temperature=50", 1);
  EXPECT_EQ((*nvml)->Look().conditions.power_limit_watts, 300);
  EXPECT_EQ((*nvml)->Look().conditions.ecc_errors, 0);
  EXPECT_EQ((*nvml)->Look().conditions.temperature_celsius, 50);
  (*nvml)->ReadSettings();
  EXPECT_EQ((*nvml)->Look().conditions.power_limit_watts, 200);
  EXPECT_EQ((*nvml)->Look().conditions.ecc_errors, 1);
}

TEST(NvmlTest, FailuresAreInItsOwnWords) {
  setenv("CONVTUNE_FAKE_NVML", "fail=1", 1);
  EXPECT_EQ(Nvml::Open(kDevice).status().message(), "NVML: start: Driver Not Loaded");
  setenv("CONVTUNE_FAKE_NVML", "", 1);
  EXPECT_EQ(Nvml::Open("0000:07:00.0").status().message(), "NVML: 0000:07:00.0: Not Found");
}

}  // namespace
}  // namespace convtune::worker::device
