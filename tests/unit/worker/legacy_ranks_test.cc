#include "server/worker/legacy_ranks.h"

#include "gtest/gtest.h"

namespace convtune {
namespace {

FoundAlgorithm Expected(int algorithm, int math_type, cudnnStatus_t status = CUDNN_STATUS_SUCCESS) {
  FoundAlgorithm found;
  found.id = {algorithm, math_type};
  found.status = status;
  return found;
}

TEST(LegacyRanks, PlacesAreThoseOfTheListWithoutWhatDoesNotRun) {
  LegacyRanks ranks;
  ranks.Add({Expected(7, 1), Expected(2, 1, CUDNN_STATUS_NOT_SUPPORTED), Expected(1, 1)});
  EXPECT_EQ(ranks.Of({7, 1}), 0);
  EXPECT_EQ(ranks.Of({1, 1}), 1);
  EXPECT_EQ(ranks.Of({2, 1}), -1);
  EXPECT_EQ(ranks.Of({0, 1}), -1);
}

TEST(LegacyRanks, TheSameAlgorithmWithAnotherMathTypeIsAnother) {
  LegacyRanks ranks;
  ranks.Add({Expected(1, 0), Expected(1, 3)});
  EXPECT_EQ(ranks.Of({1, 0}), 0);
  EXPECT_EQ(ranks.Of({1, 3}), 1);
}

TEST(LegacyRanks, ALaterListComesBehindAndMovesNothing) {
  LegacyRanks ranks;
  ranks.Add({Expected(1, 0), Expected(6, 0)});
  ranks.Add({Expected(6, 0), Expected(1, 3), Expected(1, 0)});
  EXPECT_EQ(ranks.Of({1, 0}), 0);
  EXPECT_EQ(ranks.Of({6, 0}), 1);
  EXPECT_EQ(ranks.Of({1, 3}), 2);
  ASSERT_EQ(ranks.ranked().size(), 3U);
  EXPECT_EQ(ranks.ranked()[2].id, (LegacyAlgorithm{1, 3}));
}

}  // namespace
}  // namespace convtune
