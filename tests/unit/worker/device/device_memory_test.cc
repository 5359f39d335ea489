#include "server/worker/device/device_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace convtune::worker::device {
namespace {

// Does on the host what FillWith does on a GPU.
std::string Fill(const std::string& block, int64_t bytes) {
  std::string memory(static_cast<size_t>(bytes), '?');
  const size_t uploaded = std::min(block.size(), memory.size());
  memory.replace(0, uploaded, block, 0, uploaded);
  for (const FillCopy& copy : PlanFill(static_cast<int64_t>(block.size()), bytes)) {
    // Each copy reads bytes that are there already, and writes bytes that were not.
    EXPECT_LE(copy.bytes, copy.to);
    EXPECT_LE(copy.to + copy.bytes, bytes);
    memory.replace(static_cast<size_t>(copy.to), static_cast<size_t>(copy.bytes), memory, 0,
                   static_cast<size_t>(copy.bytes));
  }
  return memory;
}

TEST(WholePagesTest, AnAllocationTakesPagesOfTwoMebibytes) {
  EXPECT_EQ(WholePages(0), 0);
  EXPECT_EQ(WholePages(1), 2 << 20);
  EXPECT_EQ(WholePages(2 << 20), 2 << 20);
  EXPECT_EQ(WholePages((2 << 20) + 1), 4 << 20);
}

TEST(PlanFillTest, RepeatsTheBlockUpToTheLastByte) {
  const std::string block = "abcdefg";
  for (int64_t bytes = 0; bytes < 100; ++bytes) {
    const std::string memory = Fill(block, bytes);
    for (size_t i = 0; i < memory.size(); ++i) {
      ASSERT_EQ(memory[i], block[i % block.size()]) << i << " of " << bytes;
    }
  }
}

TEST(PlanFillTest, ABlockThatIsLongEnoughIsCopiedNowhere) {
  EXPECT_TRUE(PlanFill(7, 7).empty());
  EXPECT_TRUE(PlanFill(7, 3).empty());
}

TEST(PlanFillTest, GigabytesTakeAFewCopiesThatKeepThePeriod) {
  const int64_t block = ((int64_t{1} << 20) + 7) * 2;
  const int64_t total = int64_t{5} << 30;
  int64_t filled = block;
  const std::vector<FillCopy> copies = PlanFill(block, total);
  for (const FillCopy& copy : copies) {
    EXPECT_EQ(copy.to, filled);
    EXPECT_EQ(copy.to % block, 0);
    filled += copy.bytes;
  }
  EXPECT_EQ(filled, total);
  EXPECT_LE(copies.size(), 12U);
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
