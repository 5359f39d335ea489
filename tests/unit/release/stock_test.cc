// Each API has its own stock choice.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/model/tuning/ranking.h"
#include "server/lookup/answer.h"
#include "server/lookup/indexed_tuning.h"
#include "server/release/portfolio.h"
#include "tests/unit/candidates.h"

namespace convtune::release {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

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

std::vector<std::pair<std::string, uint32_t>> Roles(std::vector<Candidate> candidates) {
  std::vector<std::pair<std::string, uint32_t>> roles;
  const lookup::IndexedTuning indexed = lookup::KeepBest(TuningOf(std::move(candidates)), nullptr);
  for (const Choice& choice : release::ChoosePortfolio(indexed).choices) {
    roles.emplace_back(ToText(choice.candidate.id), choice.roles);
  }
  return roles;
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

TEST(StockChoices, APortfoliosLegacyChoicesAreHeldAgainstTheLegacyOne) {
  Candidate tensor_core = Legacy(6, 0, 20);
  tensor_core.numerical_notes = NoteBit(NumericalNote::kTensorCore);
  Candidate other = Legacy(1, 1, 10);
  other.numerical_notes = NoteBit(NumericalNote::kFft);
  Candidate same = Legacy(2, 2, 15);
  same.numerical_notes = NoteBit(NumericalNote::kTensorCore);
  // The graph API's stock choice has no tensor cores; 2 keeps to the legacy one.
  EXPECT_THAT(Roles({Timed(0, 30), tensor_core, other, same}),
              ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock),
                          Pair("legacy:algo1,math0", kRoleBest | kRoleNoWorkspace),
                          Pair("legacy:algo2,math0", kRoleNeutral)));
}

TEST(StockChoices, APortfoliosLegacyBestIsTheLegacyOneWithinNoise) {
  EXPECT_THAT(Roles({Timed(0, 30), Legacy(1, 1, 10), Legacy(6, 0, 10.1)}),
              ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock),
                          Pair("legacy:algo6,math0", kServedRoles)));
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
