#include "server/worker/device/device_memory.h"

#include <gtest/gtest.h>

#include <string>

namespace convtune::worker::device {
namespace {

TEST(WholePagesTest, AnAllocationTakesPagesOfTwoMebibytes) {
  EXPECT_EQ(WholePages(0), 0);
  EXPECT_EQ(WholePages(1), 2 << 20);
  EXPECT_EQ(WholePages(2 << 20), 2 << 20);
  EXPECT_EQ(WholePages((2 << 20) + 1), 4 << 20);
}

TEST(DescribeDamageTest, SaysHowMuchAndWhere) {
  std::string zone(64, static_cast<char>(kUntouched));
  EXPECT_EQ(DescribeDamage(zone, false), "");
  zone[4] = zone[5] = '\0';
  EXPECT_EQ(DescribeDamage(zone, false), "2 bytes, from 4 bytes behind its end");
  EXPECT_EQ(DescribeDamage(zone, true), "2 bytes, from 59 bytes before its beginning");
}

}  // namespace
}  // namespace convtune::worker::device
