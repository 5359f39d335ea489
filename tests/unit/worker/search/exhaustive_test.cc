#include "server/worker/search/graph_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace convtune::worker::search {
namespace {

using Knobs = std::vector<std::pair<int, int64_t>>;

TEST(KnobRangeTest, CountsFromMinimumToMaximumInStrides) {
  EXPECT_EQ((KnobRange{1, 0, 3, 1}).Count(), 4);
  EXPECT_EQ((KnobRange{1, 2, 9, 3}).Count(), 3);
  EXPECT_EQ((KnobRange{1, 5, 5, 1}).Count(), 1);
}

TEST(KnobRangeTest, EmptyOrStridelessRangesStillHaveAValue) {
  EXPECT_EQ((KnobRange{1, 3, 2, 1}).Count(), 1);
  EXPECT_EQ((KnobRange{1, 0, 2, 0}).Count(), 3);
}

TEST(KnobSpaceTest, WithoutKnobsThereIsOneCombination) {
  const KnobSpace space({});
  EXPECT_EQ(space.size(), 1);
  EXPECT_EQ(space.At(0), Knobs());
}

TEST(KnobSpaceTest, EachCombinationComesOnceWithKnobsInOrder) {
  const KnobSpace space({{7, 10, 30, 10}, {2, 0, 4, 2}, {5, 1, 2, 1}});
  ASSERT_EQ(space.size(), 18);
  std::set<Knobs> seen;
  for (int64_t i = 0; i < space.size(); ++i) {
    const Knobs knobs = space.At(i);
    ASSERT_EQ(knobs.size(), 3U);
    EXPECT_EQ(knobs[0].first, 2);
    EXPECT_EQ(knobs[1].first, 5);
    EXPECT_EQ(knobs[2].first, 7);
    EXPECT_THAT(knobs[0].second, testing::AnyOf(0, 2, 4));
    EXPECT_THAT(knobs[1].second, testing::AnyOf(1, 2));
    EXPECT_THAT(knobs[2].second, testing::AnyOf(10, 20, 30));
    seen.insert(knobs);
  }
  EXPECT_EQ(seen.size(), 18U);
}

TEST(KnobSpaceTest, HugeSpacesAreCappedAndStillEnumerable) {
  const KnobSpace space({{1, 0, 1'000'000, 1}, {2, 0, 1'000'000, 1}, {3, 0, 1'000'000, 1}});
  EXPECT_EQ(space.size(), int64_t{1} << 40);
  std::set<Knobs> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    seen.insert(space.At(i));
  }
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_LE(space.At(space.size() - 1)[0].second, 1'000'000);
}

}  // namespace
}  // namespace convtune::worker::search
