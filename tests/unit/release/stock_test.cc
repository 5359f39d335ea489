// Each API has its own stock choice.
#include "gtest/gtest.h"
#include "proto/model/tuning/ranking.h"
#include "server/lookup/answer.h"
#include "server/lookup/indexed_tuning.h"
#include "tests/unit/candidates.h"

namespace convtune::release {
namespace {

Candidate Legacy(int algorithm, int rank, double median, int64_t workspace = 0) {
  return AsLegacy(Timed(0, median, 0.2, workspace), algorithm, rank);
}

Constraints LegacyApi() {
  Constraints constraints;
  constraints.api = Api::kLegacy;
  return constraints;
}

std::string Winner(const std::vector<Candidate>& candidates, const Constraints& constraints) {
  const auto answer = lookup::MakeAnswer(
      lookup::KeepBest(TuningOf(candidates), nullptr), nullptr, constraints,
      ConvProblem::Parse("fwd,x=1x8x8x8,w=8x8x3x3,pad=1").value(), absl::UnixEpoch());
  return answer.answer().winner().text();
}

TEST(StockChoices, UntimedLegacyAlgorithmsComeBehindAllEngineConfigs) {
  Candidate enumerated = Finalized(7);
  enumerated.heuristic_rank = -1;
  const Candidate legacy = AsLegacy(Finalized(0), 1, 0);
  EXPECT_TRUE(HeuristicBefore(Finalized(5), legacy));
  EXPECT_TRUE(HeuristicBefore(enumerated, legacy));
  EXPECT_FALSE(HeuristicBefore(legacy, enumerated));
  EXPECT_TRUE(HeuristicBefore(legacy, AsLegacy(Finalized(0), 0, 1)));
}

TEST(StockChoices, LegacyCallersKeepTheLegacyOneWithinNoise) {
  // Algorithm 1 needs less workspace and is faster, within noise.
  const std::vector<Candidate> candidates = {Timed(0, 50), Legacy(1, 1, 10),
                                             Legacy(6, 0, 10.1, 4096)};
  EXPECT_EQ(Winner(candidates, LegacyApi()), "legacy:algo6,math0");
  EXPECT_EQ(Winner(candidates, {}), "legacy:algo1,math0");
}

TEST(StockChoices, LegacyCallersGetAnotherBeyondNoise) {
  EXPECT_EQ(Winner({Timed(0, 50), Legacy(1, 1, 10), Legacy(6, 0, 10.5)}, LegacyApi()),
            "legacy:algo1,math0");
}

TEST(StockChoices, WithoutALegacyListTheFastestLegacyAlgorithmWins) {
  EXPECT_EQ(Winner({Timed(0, 50), Legacy(1, -1, 10), Legacy(6, -1, 10.1)}, LegacyApi()),
            "legacy:algo1,math0");
}

TEST(StockChoices, TheLegacyOneIsTheFirstThatTheConstraintsAllow) {
  // cuDNN's first, 6, needs workspace, and its second, 3, ties with 1.
  const std::vector<Candidate> candidates = {Timed(0, 50), Legacy(1, 2, 10), Legacy(3, 1, 10.1),
                                             Legacy(6, 0, 5, 4096)};
  EXPECT_EQ(Winner(candidates, LegacyApi()), "legacy:algo6,math0");
  Constraints bare = LegacyApi();
  bare.max_workspace_bytes = 0;
  EXPECT_EQ(Winner(candidates, bare), "legacy:algo3,math0");
}

TEST(StockChoices, TheGraphApisGuardIsAsItWas) {
  const std::vector<Candidate> graph = {Timed(0, 10.1, 0.2, 4096), Timed(1, 10)};
  std::vector<Candidate> both = graph;
  both.push_back(Legacy(6, 0, 30));
  Constraints constraints;
  for (const Api api : {Api::kAny, Api::kGraph}) {
    constraints.api = api;
    EXPECT_EQ(Winner(both, constraints), Winner(graph, constraints));
    EXPECT_EQ(Winner(both, constraints), "graph:eng0");
  }
}

TEST(StockChoices, ALegacyTuningAloneIsRankedAgainstTheLegacyOne) {
  EXPECT_EQ(Winner({Legacy(1, 1, 10), Legacy(6, 0, 10.1, 4096)}, {}), "legacy:algo6,math0");
}

TEST(StockChoices, ALegacyOneIsNotCertainWhereAnEngineConfigWasOnlySkipped) {
  EXPECT_TRUE(lookup::KeepAll(TuningOf({Legacy(6, 0, 10)})).stock_is_certain);
  EXPECT_TRUE(lookup::KeepAll(
                  TuningOf({With(Finalized(0), CandidateStatus::kUnsupported), Legacy(6, 0, 10)}))
                  .stock_is_certain);
  EXPECT_FALSE(lookup::KeepAll(TuningOf({With(Finalized(3), CandidateStatus::kSkippedBudget),
                                         Legacy(6, 0, 10)}))
                   .stock_is_certain);
  EXPECT_TRUE(lookup::KeepAll(TuningOf({Timed(1, 10), With(AsLegacy(Finalized(0), 6, 0),
                                                           CandidateStatus::kSkippedBudget)}))
                  .stock_is_certain);
}

}  // namespace
}  // namespace convtune::release
