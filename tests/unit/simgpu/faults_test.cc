// The script of faults: what it says happens, and nothing else.
#include "tests/simgpu/faults/faults.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/unit/simgpu/fault_script.h"

namespace convtune::simgpu {
namespace {

Site Execution(const std::string& engine, const std::string& launch = "eager") {
  return {{"engine", engine}, {"operation", "fwd"}, {"launch", launch}};
}

TEST(FaultsTest, ALineHoldsWhereAllOfItsKeysDo) {
  WriteFaults("# a comment\nengine:22 launch:replay = wrong\noperation:fwd engine:5 = nan\n");
  EXPECT_EQ(FaultAt(Execution("22")), std::nullopt);
  EXPECT_EQ(FiredFaults(), "");
  EXPECT_EQ(FaultAt(Execution("22", "replay")), Action::kWrong);
  EXPECT_EQ(FaultAt(Execution("5")), Action::kNan);
  EXPECT_EQ(FaultAt(Execution("2")), std::nullopt);
  EXPECT_EQ(FiredFaults(), "engine:22 launch:replay = wrong\noperation:fwd engine:5 = nan\n");
}

TEST(FaultsTest, TheFileIsReadAtEachCall) {
  WriteFaults("engine:1 = wrong\n");
  EXPECT_EQ(FaultAt(Execution("1")), Action::kWrong);
  WriteFaults("engine:1 = not_supported\n");
  EXPECT_EQ(FaultAt(Execution("1")), Action::kNotSupported);
}

TEST(FaultsTest, AnActionHoldsOnlyWhereItCanBeDone) {
  WriteFaults("engine:1 = fork\nengine:1 = fail\n");
  EXPECT_EQ(FaultAt(Execution("1", "replay")), std::nullopt);
  EXPECT_EQ(FaultAt(Execution("1", "eager")), Action::kFail);
  EXPECT_EQ(FaultAt(Execution("1", "capture")), Action::kFork);
  EXPECT_EQ(FiredFaults(), "engine:1 = fail\nengine:1 = fork\n");
}

TEST(FaultsTest, NthAndTimes) {
  WriteFaults("engine:30 nth:2 = wrong\nengine:31 times:2 = nan\n");
  EXPECT_EQ(FaultAt(Execution("30")), std::nullopt);
  EXPECT_EQ(FaultAt(Execution("30")), Action::kWrong);
  EXPECT_EQ(FaultAt(Execution("30")), std::nullopt);
  EXPECT_EQ(FaultAt(Execution("31")), Action::kNan);
  EXPECT_EQ(FaultAt(Execution("31")), Action::kNan);
  EXPECT_EQ(FaultAt(Execution("31")), std::nullopt);
  // What other processes had counts.
  std::ofstream(FaultsPath() + ".fired") << "";
  EXPECT_EQ(FaultAt(Execution("31")), Action::kNan);
}

TEST(FaultsTest, AnAllocationOfAtLeastSoManyBytes) {
  WriteFaults("malloc:100 = fail\n");
  EXPECT_EQ(FaultAt({{"malloc", "99"}}), std::nullopt);
  EXPECT_EQ(FaultAt({{"malloc", "100"}}), Action::kFail);
  EXPECT_EQ(FaultAt(Execution("1")), std::nullopt);
}

TEST(FaultsTest, ACallOfAFunction) {
  WriteFaults("call:cudaSetDevice = fail\ncall:cudnnCreate = abort\n");
  EXPECT_EQ(FaultOfCall("cudaEventCreate"), std::nullopt);
  EXPECT_EQ(FaultOfCall("cudaSetDevice"), Action::kFail);
  EXPECT_DEATH(FaultOfCall("cudnnCreate"), "");
  EXPECT_EQ(FiredFaults(), "call:cudaSetDevice = fail\ncall:cudnnCreate = abort\n");
}

TEST(FaultsTest, WhatCannotBeDoneIsRefused) {
  const std::string refused[] = {"engin:1 = wrong\n",     "engine:1 = wrogn\n",
                                 "engine:1 wrong\n",      "engine:1 find:1/0 = fail\n",
                                 "malloc = nan\n",        "engine:1 nth:0 = wrong\n",
                                 "nth:1 = wrong\n",       "launch:later = wrong\n",
                                 "launch:eager = fork\n", "launch:replay = fail\n"};
  for (const std::string& text : refused) {
    WriteFaults(text);
    EXPECT_EXIT(FaultAt(Execution("1")), ::testing::ExitedWithCode(2), "simgpu: faults: ") << text;
  }
}

}  // namespace
}  // namespace convtune::simgpu
