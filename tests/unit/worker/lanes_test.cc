#include "server/worker/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

namespace convtune {
namespace {

TEST(LanesTest, CountIsWhatIsAskedForWithinBounds) {
  EXPECT_EQ(LaneCount(1), 1);
  EXPECT_EQ(LaneCount(3), 3);
  EXPECT_EQ(LaneCount(1000), kMostLanes);
  EXPECT_EQ(LaneCount(-1), LaneCount(0));
  EXPECT_GE(LaneCount(0), 1);
  EXPECT_LE(LaneCount(0), kMostLanes);
}

TEST(LanesTest, EachLaneIsWorkedOnce) {
  std::array<std::atomic<int>, kMostLanes> calls = {};
  RunOnLanes(kMostLanes, [&calls](int lane) { ++calls[static_cast<size_t>(lane)]; });
  for (const std::atomic<int>& count : calls) {
    EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace convtune
