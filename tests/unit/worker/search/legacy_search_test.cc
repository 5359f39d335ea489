#include "server/worker/search/legacy_search.h"
#include "proto/base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/tuning/note_rules.h"

namespace convtune::worker::search {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ConvProblem Problem(const std::string& text) { return ConvProblem::Parse(text).value(); }

TEST(FindIsAffordableTest, ForTheLayersOfResNet50AndNotForAMegapixelOf512Channels) {
  EXPECT_TRUE(FindIsAffordable(Problem("fwd,x=256x64x56x56,w=64x64x3x3,pad=1,nhwc,f16")));
  EXPECT_TRUE(FindIsAffordable(Problem("bwd_filter,x=256x3x224x224,w=64x3x7x7,stride=2,pad=3")));
  for (const char* operation : {"fwd", "bwd_data", "bwd_filter"}) {
    EXPECT_FALSE(FindIsAffordable(
        Problem(std::string(operation) + ",x=1x512x1024x1024,w=512x512x3x3,pad=1")));
  }
}

// As the heuristic has it, without a time.
cudnn::FoundAlgorithm Expected(int algorithm, int math_type,
                               cudnnStatus_t status = CUDNN_STATUS_SUCCESS) {
  cudnn::FoundAlgorithm found;
  found.id = {algorithm, math_type};
  found.status = status;
  return found;
}

// As a search has it.
cudnn::FoundAlgorithm Found(int algorithm, int math_type,
                            cudnnStatus_t status = CUDNN_STATUS_SUCCESS) {
  cudnn::FoundAlgorithm found = Expected(algorithm, math_type, status);
  found.time_us = status == CUDNN_STATUS_SUCCESS ? 10 : 0;
  return found;
}

std::vector<LegacyAlgorithm> Ranked(const std::vector<std::vector<cudnn::FoundAlgorithm>>& lists) {
  std::vector<cudnn::FoundAlgorithm> expected;
  for (const auto& list : lists) AddExpected(list, &expected);
  std::vector<LegacyAlgorithm> ids;
  for (const cudnn::FoundAlgorithm& entry : expected) ids.push_back(entry.id);
  return ids;
}

TEST(AddExpectedTest, RanksAreThoseOfTheListWithoutWhatDoesNotRun) {
  EXPECT_THAT(
      Ranked({{Expected(7, 1), Expected(2, 1, CUDNN_STATUS_NOT_SUPPORTED), Expected(1, 1)}}),
      ElementsAre(LegacyAlgorithm{7, 1}, LegacyAlgorithm{1, 1}));
}

TEST(AddExpectedTest, TheSameAlgorithmWithAnotherMathTypeIsAnother) {
  EXPECT_THAT(Ranked({{Expected(1, 0), Expected(1, 3)}}),
              ElementsAre(LegacyAlgorithm{1, 0}, LegacyAlgorithm{1, 3}));
}

TEST(AddExpectedTest, ALaterListComesBehindAndMovesNothing) {
  EXPECT_THAT(
      Ranked({{Expected(1, 0), Expected(6, 0)}, {Expected(6, 0), Expected(1, 3), Expected(1, 0)}}),
      ElementsAre(LegacyAlgorithm{1, 0}, LegacyAlgorithm{6, 0}, LegacyAlgorithm{1, 3}));
}

TEST(AddExpectedTest, TheFirstListIsThatOfProgramsWhichAskForNothingElse) {
  EXPECT_EQ(MathTypesOfHeuristic(DataType::kF16).front(), CUDNN_TENSOR_OP_MATH);
  for (const DataType type :
       {DataType::kF64, DataType::kF32, DataType::kBF16, DataType::kI8, DataType::kE4M3}) {
    EXPECT_EQ(MathTypesOfHeuristic(type).front(), CUDNN_DEFAULT_MATH);
  }
}

// Who takes no TF32 leaves out whatever DEFAULT_MATH lists, and gets the first
// of the list of FMA_MATH.
TEST(AddExpectedTest, WithoutTf32ItIsWhatFmaMathListsFirst) {
  std::vector<std::vector<cudnn::FoundAlgorithm>> lists;
  for (const cudnnMathType_t math : MathTypesOfHeuristic(DataType::kF32)) {
    lists.push_back({Expected(math == CUDNN_FMA_MATH ? 6 : 1, math), Expected(0, math)});
  }
  const std::vector<LegacyAlgorithm> ranked = Ranked(lists);
  const auto first = std::find_if(ranked.begin(), ranked.end(), [](const LegacyAlgorithm& id) {
    const uint32_t notes =
        LegacyNotes(Operation::kFwd, DataType::kF32, 3, id.algorithm, id.math_type, true);
    return (notes & NoteBit(NumericalNote::kTensorCore)) == 0;
  });
  ASSERT_NE(first, ranked.end());
  EXPECT_EQ(*first, (LegacyAlgorithm{6, CUDNN_FMA_MATH}));
}

// cuDNN, of which the heuristic lists two algorithms, and a search finds a third.
class FakeLegacyApi : public cudnn::LegacyApi {
 public:
  absl::StatusOr<std::vector<cudnn::FoundAlgorithm>> Expected(cudnnMathType_t math_type) override {
    return std::vector<cudnn::FoundAlgorithm>{Found(1, math_type), Found(0, math_type)};
  }
  absl::StatusOr<int64_t> LargestWorkspace(cudnnMathType_t, int64_t) override { return 0; }
  absl::StatusOr<std::vector<cudnn::FoundAlgorithm>> Find(cudnnMathType_t math_type,
                                                          const cudnn::ConvPointers&, void*,
                                                          int64_t) override {
    ++finds;
    return std::vector<cudnn::FoundAlgorithm>{Found(6, math_type), Found(1, math_type, status_of_1),
                                              Found(0, math_type, status_of_0)};
  }
  absl::StatusOr<int64_t> WorkspaceBytes(const LegacyAlgorithm&) override { return 0; }

  int finds = 0;
  // In searches; of what the heuristic lists first, and next.
  cudnnStatus_t status_of_1 = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t status_of_0 = CUDNN_STATUS_SUCCESS;
};

class ListLegacyTest : public testing::Test {
 protected:
  void List(const std::string& text,
            const std::optional<cudnn::ConvPointers>& tensors = cudnn::ConvPointers()) {
    const BackendProblem::OnListed on_listed = [this](const Candidate& candidate) {
      listed_.push_back(ToText(candidate.id));
      ranks_.push_back(candidate.heuristic_rank);
      if (!candidate.error_message.empty()) refused_.push_back(ToText(candidate.id));
      return true;
    };
    ListingSink sink(max_candidates_, deadline_, on_listed);
    EXPECT_EQ(ListLegacyAlgorithms(Problem(text), &cudnn_, tensors, int64_t{1} << 30, &sink),
              absl::OkStatus());
    end_ = sink.outcome();
  }

  int max_candidates_ = 0;
  SteadyTime deadline_ = SteadyTime::InfiniteFuture();
  FakeLegacyApi cudnn_;
  std::vector<std::string> refused_;
  std::vector<std::string> listed_;
  std::vector<int> ranks_;
  worker::v1::Outcome end_;
};

TEST_F(ListLegacyTest, WhatIsSmallIsSearched) {
  List("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f16");
  EXPECT_EQ(cudnn_.finds, 1);
  EXPECT_FALSE(end_.find_left_out());
  EXPECT_THAT(listed_,
              ElementsAre("legacy:algo1,math1", "legacy:algo0,math1", "legacy:algo6,math1"));
  EXPECT_THAT(ranks_, ElementsAre(0, 1, -1));
}

TEST_F(ListLegacyTest, WithoutTensorsNothingIsSearched) {
  List("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f16", std::nullopt);
  EXPECT_EQ(cudnn_.finds, 0);
  EXPECT_FALSE(end_.find_left_out());
  EXPECT_THAT(listed_, ElementsAre("legacy:algo1,math1", "legacy:algo0,math1"));
}

TEST_F(ListLegacyTest, WhatASearchSaysIsNotSupportedIsRefusedAndComesLast) {
  cudnn_.status_of_1 = CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH;
  List("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f16");
  EXPECT_THAT(listed_,
              ElementsAre("legacy:algo0,math1", "legacy:algo6,math1", "legacy:algo1,math1"));
  EXPECT_THAT(refused_, ElementsAre("legacy:algo1,math1"));
}

TEST_F(ListLegacyTest, WhatFailsOtherwiseInASearchIsTriedAsACandidate) {
  for (const cudnnStatus_t status :
       {CUDNN_STATUS_EXECUTION_FAILED, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
        CUDNN_STATUS_BAD_PARAM}) {
    listed_.clear();
    cudnn_.status_of_1 = status;
    List("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f16");
    EXPECT_THAT(listed_,
                ElementsAre("legacy:algo1,math1", "legacy:algo0,math1", "legacy:algo6,math1"));
    EXPECT_THAT(refused_, IsEmpty()) << cudnnGetErrorString(status);
  }
}

TEST_F(ListLegacyTest, ALimitOnCandidatesCostsTheStockChoiceLast) {
  max_candidates_ = 2;
  cudnn_.status_of_0 = CUDNN_STATUS_NOT_SUPPORTED;
  List("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f16");
  EXPECT_THAT(listed_, ElementsAre("legacy:algo1,math1", "legacy:algo6,math1"));
  EXPECT_TRUE(end_.truncated());
}

// The deadline has passed; the first search is run all the same, with nothing listed.
TEST_F(ListLegacyTest, WhatIsLateIsSearchedOnce) {
  deadline_ = SteadyTime::InfinitePast();
  List("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f32");
  EXPECT_EQ(cudnn_.finds, 1);
  EXPECT_TRUE(end_.out_of_time());
}

TEST_F(ListLegacyTest, OfWhatIsLargeTheHeuristicsListIsTakenAndTheListingSaysSo) {
  List("fwd,x=1x512x1024x1024,w=512x512x3x3,pad=1,f16");
  EXPECT_EQ(cudnn_.finds, 0);
  EXPECT_TRUE(end_.find_left_out());
  EXPECT_FALSE(end_.out_of_time());
  EXPECT_THAT(listed_, ElementsAre("legacy:algo1,math1", "legacy:algo0,math1"));
  EXPECT_THAT(ranks_, ElementsAre(0, 1));
}

}  // namespace
}  // namespace convtune::worker::search
