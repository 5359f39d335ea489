#include "server/worker/search/legacy_ranks.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "proto/model/tuning/legacy_notes.h"

namespace convtune::worker::search {
namespace {

cudnn::FoundAlgorithm Expected(int algorithm, int math_type,
                               cudnnStatus_t status = CUDNN_STATUS_SUCCESS) {
  cudnn::FoundAlgorithm found;
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

TEST(LegacyRanks, TheFirstListIsThatOfProgramsWhichAskForNothingElse) {
  EXPECT_EQ(MathTypesOfHeuristic(DataType::kF16).front(), CUDNN_TENSOR_OP_MATH);
  for (const DataType type :
       {DataType::kF64, DataType::kF32, DataType::kBF16, DataType::kI8, DataType::kE4M3}) {
    EXPECT_EQ(MathTypesOfHeuristic(type).front(), CUDNN_DEFAULT_MATH);
  }
}

// Who takes no TF32 leaves out whatever DEFAULT_MATH lists, and gets the first
// of the list of FMA_MATH.
TEST(LegacyRanks, WithoutTf32ItIsWhatFmaMathListsFirst) {
  LegacyRanks ranks;
  for (const cudnnMathType_t math : MathTypesOfHeuristic(DataType::kF32)) {
    ranks.Add({Expected(math == CUDNN_FMA_MATH ? 6 : 1, math), Expected(0, math)});
  }
  const auto first = std::find_if(
      ranks.ranked().begin(), ranks.ranked().end(), [](const cudnn::FoundAlgorithm& entry) {
        const uint32_t notes =
            LegacyNumericalNotes(Operation::kFwd, DataType::kF32, 3, entry.id, true);
        return (notes & NoteBit(NumericalNote::kTensorCore)) == 0;
      });
  ASSERT_NE(first, ranks.ranked().end());
  EXPECT_EQ(first->id, (LegacyAlgorithm{6, CUDNN_FMA_MATH}));
}

}  // namespace
}  // namespace convtune::worker::search
