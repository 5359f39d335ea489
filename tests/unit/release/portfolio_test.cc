#include "server/release/portfolio.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/candidates.h"

namespace convtune::release {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Chosen = std::vector<std::pair<std::string, uint32_t>>;  // candidates with their roles

Chosen ChooseOf(const Tuning& tuning, const Bans& bans = {}) {
  Chosen chosen;
  for (const Choice& choice : ChoosePortfolio(lookup::KeepBest(tuning, nullptr, bans)).choices) {
    chosen.emplace_back(ToText(choice.candidate.id), choice.roles);
  }
  return chosen;
}

Chosen Choose(std::vector<Candidate> candidates) {
  return ChooseOf(TuningOf(std::move(candidates)));
}

Candidate WithNotes(Candidate candidate, uint32_t notes) {
  candidate.numerical_notes = notes;
  return candidate;
}

Candidate Legacy(int algorithm, double median, int64_t workspace = 0) {
  return AsLegacy(Timed(0, median, 0.2, workspace), algorithm, -1);
}

TEST(Portfolio, OneCandidateMayBeForEverything) {
  EXPECT_THAT(Choose({Timed(0, 10), Timed(1, 20)}),
              ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock)));
}

TEST(Portfolio, WinnerWithOtherNotesIsFollowedByTheBestNeutralOne) {
  const auto chosen = Choose({WithNotes(Timed(0, 30, 0.2, 64), 0),
                              WithNotes(Timed(1, 10, 0.2, 64), NoteBit(NumericalNote::kFft)),
                              WithNotes(Timed(2, 20, 0.2, 64), 0)});
  EXPECT_THAT(chosen, ElementsAre(Pair("graph:eng1", kRoleBest), Pair("graph:eng2", kRoleNeutral),
                                  Pair("graph:eng0", kRoleStock)));
}

TEST(Portfolio, NeutralNeedsNoMoreWorkspaceThanStock) {
  const auto chosen = Choose({Timed(0, 30, 0.2, 64), Timed(1, 10, 0.2, 65), Timed(2, 25, 0.2, 64)});
  EXPECT_THAT(chosen, ElementsAre(Pair("graph:eng1", kRoleBest), Pair("graph:eng2", kRoleNeutral),
                                  Pair("graph:eng0", kRoleStock)));
}

TEST(Portfolio, OfWhatTheIndexKeepsIsThatOfTheWholeTuning) {
  constexpr uint32_t kNotes[] = {NoteBit(NumericalNote::kTensorCore),
                                 NoteBit(NumericalNote::kNondeterministic),
                                 NoteBit(NumericalNote::kStrictNanProp)};
  std::mt19937 random(7);
  size_t pruned = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Candidate> candidates;
    for (int engine = 0; engine < 8; ++engine) {
      uint32_t notes = 0;
      for (const uint32_t note : kNotes) notes |= random() % 2 == 0 ? note : 0;
      const int64_t workspace = static_cast<int64_t>(random() % 3);
      candidates.push_back(WithNotes(
          Timed(engine, 10.0 + static_cast<double>(random() % 20), 0.2, workspace), notes));
    }
    const Tuning tuning = TuningOf(std::move(candidates));
    const lookup::IndexedTuning best = lookup::KeepBest(tuning, nullptr);
    pruned += best.pruned.size();
    ASSERT_EQ(ChoosePortfolio(best).Fingerprint(),
              ChoosePortfolio(lookup::KeepAll(tuning)).Fingerprint());
  }
  EXPECT_GT(pruned, 1000U);
}

TEST(Portfolio, NeutralIsDeterministicWhereStockIs) {
  const auto chosen =
      Choose({Timed(0, 30), WithNotes(Timed(1, 10), NoteBit(NumericalNote::kNondeterministic))});
  EXPECT_EQ(chosen[0], std::make_pair(std::string("graph:eng1"), kRoleBest | kRoleNoWorkspace));
  EXPECT_EQ(chosen[1], std::make_pair(std::string("graph:eng0"), kRoleNeutral | kRoleStock));
}

TEST(Portfolio, TheBestWithoutWorkspaceComesLast) {
  const auto chosen = Choose({Timed(0, 20, 0.2, 64), Timed(1, 10, 0.2, 32), Timed(2, 40)});
  EXPECT_THAT(chosen,
              ElementsAre(Pair("graph:eng1", kRoleBest | kRoleNeutral),
                          Pair("graph:eng2", kRoleNoWorkspace), Pair("graph:eng0", kRoleStock)));
}

TEST(Portfolio, EachApiHasItsOwn) {
  const auto chosen = Choose({Timed(0, 20), Legacy(1, 10), Legacy(2, 5, 64)});
  EXPECT_THAT(chosen, ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock),
                                  Pair("legacy:algo2,math0", kRoleBest),
                                  Pair("legacy:algo1,math0", kRoleNeutral | kRoleNoWorkspace)));
}

TEST(Portfolio, StockIsLeftOutWhereOneBeforeItWasOnlySkipped) {
  const auto chosen = Choose({With(Finalized(0), CandidateStatus::kSkippedBudget), Timed(1, 10)});
  EXPECT_THAT(chosen, ElementsAre(Pair("graph:eng1", kServedRoles)));
}

TEST(Portfolio, StockIsCertainWhereThoseBeforeItWereRefused) {
  const auto chosen = Choose({With(Finalized(0), CandidateStatus::kUnsupported), Timed(1, 10)});
  EXPECT_THAT(chosen, ElementsAre(Pair("graph:eng1", kServedRoles | kRoleStock)));
}

TEST(Portfolio, EnginesThatWantTheirFilterReorderedAreNotServed) {
  Candidate reorders = Timed(1, 5);
  reorders.behavior_notes = NoteBit(BehaviorNote::kRequiresFilterInt8x32Reorder);
  EXPECT_THAT(Choose({Timed(0, 10), reorders}),
              ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock)));
  EXPECT_THAT(Choose({reorders}), IsEmpty());
}

TEST(Portfolio, FingerprintIsOfWhatIsServedAlone) {
  Portfolio a = ChoosePortfolio(lookup::KeepBest(TuningOf({Timed(0, 10), Timed(1, 20)}), nullptr));
  Portfolio b = a;
  b.choices[0].candidate.median_us = 11;
  b.choices[0].roles &= ~kRoleStock;
  b.evidence = Evidence::kObserved;
  EXPECT_EQ(a.Fingerprint(), b.Fingerprint());
  b.choices[0].candidate.id = EngineConfig{7, {}};
  EXPECT_NE(a.Fingerprint(), b.Fingerprint());
}

Chosen ChooseUnjudged(std::vector<Candidate> candidates, IncompleteReason reason) {
  Tuning tuning = TuningOf(std::move(candidates));
  AddReason(reason, "", &tuning);
  return ChooseOf(tuning);
}

TEST(Portfolio, OfATuningThatCouldNotBeJudgedNothingIsChosen) {
  EXPECT_THAT(ChooseUnjudged({Finalized(0), Finalized(1)}, IncompleteReason::kUnjudged), IsEmpty());
}

TEST(Portfolio, AnUnjudgedStockChoiceIsNotChosenAndNothingSlowerInItsPlace) {
  constexpr IncompleteReason kGraph = IncompleteReason::kGraphStockUnjudged;
  EXPECT_THAT(ChooseUnjudged({Timed(0, 10), Timed(1, 20)}, kGraph), IsEmpty());
  EXPECT_THAT(ChooseUnjudged({Timed(0, 20), Timed(1, 10)}, kGraph),
              ElementsAre(Pair("graph:eng1", kServedRoles), Pair("graph:eng0", kRoleStock)));
  // The other API's choice is its own.
  EXPECT_THAT(
      ChooseUnjudged({Timed(0, 10), AsLegacy(Timed(0, 12), 1, 0)}, kGraph),
      ElementsAre(Pair("legacy:algo1,math0", kServedRoles), Pair("graph:eng0", kRoleStock)));
}

TEST(Portfolio, ABannedCandidateIsNeverChosenAndTheStockChoicesNotesStay) {
  const Tuning tuning = TuningOf({Timed(0, 30), Timed(1, 10), Timed(2, 20)});
  EXPECT_THAT(ChooseOf(tuning, BansOfPattern("eng1")),
              ElementsAre(Pair("graph:eng2", kServedRoles), Pair("graph:eng0", kRoleStock)));
  EXPECT_THAT(ChooseOf(tuning, BansOfPattern("eng0")),
              ElementsAre(Pair("graph:eng1", kServedRoles), Pair("graph:eng0", kRoleStock)));
  EXPECT_THAT(ChooseOf(tuning, BansOfPattern("graph:*")), IsEmpty());
}

TEST(Portfolio, LegacyChoicesAreHeldAgainstTheLegacyStockChoice) {
  const uint32_t tensor_core = NoteBit(NumericalNote::kTensorCore);
  // The graph API's stock choice has no tensor cores; 2 keeps to the legacy one.
  EXPECT_THAT(Choose({Timed(0, 30), AsLegacy(WithNotes(Timed(0, 20), tensor_core), 6, 0),
                      AsLegacy(WithNotes(Timed(0, 10), NoteBit(NumericalNote::kFft)), 1, 1),
                      AsLegacy(WithNotes(Timed(0, 15), tensor_core), 2, 2)}),
              ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock),
                          Pair("legacy:algo1,math0", kRoleBest | kRoleNoWorkspace),
                          Pair("legacy:algo2,math0", kRoleNeutral)));
  // Which stays within noise.
  EXPECT_THAT(Choose({Timed(0, 30), AsLegacy(Timed(0, 10), 1, 1), AsLegacy(Timed(0, 10.1), 6, 0)}),
              ElementsAre(Pair("graph:eng0", kServedRoles | kRoleStock),
                          Pair("legacy:algo6,math0", kServedRoles)));
}

}  // namespace
}  // namespace convtune::release
