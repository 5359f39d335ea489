#include "server/devices/gpu_health.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace convtune::devices {
namespace {

class GpuHealthTest : public ::testing::Test {
 protected:
  GpuHealthTest() {
    health_.Add("gpu:0");
    health_.SetInterrupt("gpu:0", [this] { ++interrupts_; });
    health_.SetListener([this](const std::string& device, bool lost, bool any_lost) {
      heard_.push_back(device + (lost ? " lost" : " there"));
      any_lost_ = any_lost;
    });
  }

  int interrupts_ = 0;
  std::vector<std::string> heard_;
  bool any_lost_ = true;
  GpuHealth health_;
};

TEST_F(GpuHealthTest, AnXidThatTakesTheCardIsToldOnceAndInterruptsTheWork) {
  health_.NoteXid("gpu:0", 79);
  health_.NoteXid("gpu:0", 95);
  EXPECT_EQ(heard_, (std::vector<std::string>{"gpu:0 there", "gpu:0 lost"}));
  EXPECT_EQ(interrupts_, 1);
  EXPECT_EQ(health_.Check("gpu:0").message(),
            "the GPU is lost: Xid 79 (the GPU has fallen off the bus)");
  EXPECT_EQ(health_.List().at(0).xids, (std::map<int64_t, int64_t>{{79, 1}, {95, 1}}));
}

TEST_F(GpuHealthTest, ACardThatIsBackCanBeUsedAndLostAgain) {
  health_.NoteLost("gpu:0", "GPU is lost");
  EXPECT_FALSE(health_.Check("gpu:0").ok());
  health_.NoteBack("gpu:0");
  EXPECT_TRUE(health_.Check("gpu:0").ok());
  health_.NoteBack("gpu:0");
  health_.NoteXid("gpu:0", 48);
  EXPECT_EQ(heard_,
            (std::vector<std::string>{"gpu:0 there", "gpu:0 lost", "gpu:0 there", "gpu:0 lost"}));
}

TEST_F(GpuHealthTest, WhetherAnyIsLostIsToldWithEach) {
  EXPECT_FALSE(any_lost_);
  health_.NoteXid("gpu:0", 79);
  EXPECT_TRUE(any_lost_);
  health_.Add("gpu:1");
  EXPECT_TRUE(any_lost_);
  health_.NoteBack("gpu:0");
  EXPECT_FALSE(any_lost_);
}

TEST_F(GpuHealthTest, AnApplicationsXidMakesTheWorkerStaleOnce) {
  EXPECT_FALSE(health_.TakeStale("gpu:0"));
  health_.NoteXid("gpu:0", 31);
  EXPECT_TRUE(health_.Check("gpu:0").ok());
  EXPECT_TRUE(health_.TakeStale("gpu:0"));
  EXPECT_FALSE(health_.TakeStale("gpu:0"));
  EXPECT_EQ(interrupts_, 0);
}

TEST_F(GpuHealthTest, ANoticeChangesNothing) {
  health_.NoteXid("gpu:0", 63);
  EXPECT_TRUE(health_.Check("gpu:0").ok());
  EXPECT_FALSE(health_.TakeStale("gpu:0"));
}

TEST_F(GpuHealthTest, WhatIsNotOnItIsNeverLost) {
  health_.NoteXid("gpu:7", 79);
  EXPECT_TRUE(health_.Check("gpu:7").ok());
  EXPECT_EQ(health_.List().size(), 1U);
}

TEST(XidTest, TheCataloguesActionsDecide) {
  for (const int xid : {46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 158}) {
    EXPECT_EQ(KindOfXid(xid), XidKind::kLost) << xid;
  }
  for (const int xid : {8, 13, 31, 32, 43, 45, 69, 94}) {
    EXPECT_EQ(KindOfXid(xid), XidKind::kApplication) << xid;
  }
  for (const int xid : {0, 14, 63, 92, 93, 121, 154, 1000}) {
    EXPECT_EQ(KindOfXid(xid), XidKind::kNotice) << xid;
  }
  EXPECT_EQ(DescribeXid(1000), "Xid 1000");
}

}  // namespace
}  // namespace convtune::devices
