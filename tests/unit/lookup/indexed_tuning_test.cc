#include "server/lookup/indexed_tuning.h"

#include <algorithm>
#include <numeric>

#include "gtest/gtest.h"
#include "server/lookup/answer.h"
#include "tests/unit/candidates.h"

namespace convtune::lookup {
namespace {

Constraints RandomConstraints(std::mt19937* random) {
  const auto coin = [random](unsigned n) { return (*random)() % n == 0; };
  Constraints constraints;
  if (coin(2)) constraints.max_workspace_bytes = static_cast<int64_t>((*random)() % 4) * 1024;
  constraints.deterministic = coin(3);
  constraints.forbid_tf32 = coin(4);
  constraints.forbid_down_convert = coin(4);
  constraints.forbid_winograd = coin(4);
  constraints.forbid_fft = coin(4);
  constraints.forbid_reduced_precision_reduction = coin(4);
  constraints.api = coin(3) ? Api::kGraph : coin(3) ? Api::kLegacy : Api::kAny;
  if (coin(3)) constraints.max_error = (*random)() % 3;
  if (coin(3)) constraints.cache_state = coin(2) ? CacheState::kHot : CacheState::kCold;
  constraints.launch = coin(4) ? LaunchMode::kGraphCapture : LaunchMode::kEager;
  return constraints;
}

// Gives most of the legacy candidates a place in a list of their own.
std::vector<Candidate> WithLegacyRanks(std::vector<Candidate> candidates, std::mt19937* random) {
  std::vector<int> places(candidates.size());
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), *random);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (ApiOf(candidates[i].id) != Api::kLegacy) continue;
    candidates[i].heuristic_rank = (*random)() % 5 == 0 ? -1 : places[i];
  }
  return candidates;
}

void ExpectAnswersOfTheWhole(bool legacy_ranks, const Bans& bans = {}) {
  const ConvProblem single = ConvProblem::Parse("fwd,x=1x8x8x8,w=8x8x3x3,pad=1").value();
  const ConvProblem half = ConvProblem::Parse("fwd,x=1x8x8x8,w=8x8x3x3,pad=1,f16").value();
  std::mt19937 random(42);
  int answers = 0;
  int banned = 0;
  int64_t pruned = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Candidate> candidates = RandomCandidates(&random);
    if (legacy_ranks) candidates = WithLegacyRanks(std::move(candidates), &random);
    Tuning tuning = TuningOf(std::move(candidates));
    if (i % 2 == 0) tuning.stop_reason = StopReason::kSettled;
    const IndexedTuning all = KeepAll(tuning, bans);
    const IndexedTuning best = KeepBest(tuning, nullptr, bans);
    ASSERT_EQ(all.Winner(), best.Winner());
    for (const PrunedGroup& group : best.pruned) pruned += group.count;
    for (int j = 0; j < 20; ++j) {
      const Constraints constraints = RandomConstraints(&random);
      const ConvProblem& problem = j % 2 == 0 ? single : half;
      const absl::Time now = absl::Now();
      v1::BatchGetResult expected = MakeAnswer(all, nullptr, constraints, problem, now);
      v1::BatchGetResult actual = MakeAnswer(best, nullptr, constraints, problem, now);
      // These may differ under constraints.
      if (expected.has_answer()) expected.mutable_answer()->clear_runners_up();
      if (actual.has_answer()) actual.mutable_answer()->clear_runners_up();
      ASSERT_EQ(expected.SerializeAsString(), actual.SerializeAsString())
          << expected.DebugString() << actual.DebugString();
      if (expected.has_miss()) continue;
      ++answers;
      banned += expected.answer().has_banned() ? 1 : 0;
    }
  }
  EXPECT_GT(answers, 1000);
  EXPECT_GT(pruned, 1000);
  EXPECT_EQ(banned > 100, !bans.empty());
}

TEST(KeepBest, AnswersAsTheWholeTuningUnderAnyConstraints) { ExpectAnswersOfTheWhole(false); }

TEST(KeepBest, AnswersAsTheWholeTuningWhereTheLegacyApiHasAStockChoice) {
  ExpectAnswersOfTheWhole(true);
}

TEST(KeepBest, AnswersAsTheWholeTuningUnderABan) {
  // Engines 0 to 29 occur; a third of all candidates.
  Ban ban;
  ban.reason = "x";
  std::vector<Bans::Shared> bans;
  for (int engine = 0; engine < 30; engine += 3) {
    ban.number = engine;
    ban.candidate = CandidatePattern::Parse("eng" + std::to_string(engine)).value();
    bans.push_back(std::make_shared<const Ban>(ban));
  }
  ExpectAnswersOfTheWhole(true, Bans(std::move(bans)));
}

TEST(KeepBest, ABannedCandidateTakesNoOthersPlace) {
  const Tuning tuning = TuningOf(
      {Timed(0, 50), Timed(1, 10), Timed(2, 20), Timed(3, 30), Timed(4, 40), Timed(5, 60)});
  const IndexedTuning best = KeepBest(tuning, nullptr, BansOfPattern("eng1"));
  EXPECT_EQ(best.Winner(), "graph:eng2");
  EXPECT_EQ(best.bans->of_winner->Name(), "bans/1");
  EXPECT_EQ(KeepBest(tuning, nullptr).bans, nullptr);
  EXPECT_EQ(KeepBest(tuning, nullptr, BansOfPattern("eng9")).bans, nullptr);
}

TEST(KeepBest, KeepsTheRunnersUpThoughTheyAreDominated) {
  const IndexedTuning best =
      KeepBest(TuningOf({Timed(0, 10), Timed(1, 20), Timed(2, 30), Timed(3, 40)}), nullptr);
  EXPECT_EQ(best.tuning.candidates.size(), 3U);
}

TEST(KeepBest, KeepsTheStockChoice) {
  const IndexedTuning best = KeepBest(TuningOf({Timed(0, 90, 0.2, 4096), Timed(1, 10)}), nullptr);
  ASSERT_TRUE(best.stock.has_value());
  EXPECT_EQ(best.tuning.candidates[*best.stock].heuristic_rank, 0);
}

TEST(KeepBest, KeepsThePinnedCandidate) {
  const Tuning tuning =
      TuningOf({Timed(0, 10), Timed(1, 20), Timed(2, 30), Timed(3, 90, 0.2, 4096)});
  const CandidateId pinned = EngineConfig{3, {}};
  EXPECT_EQ(KeepBest(tuning, nullptr).tuning.candidates.size(), 3U);
  EXPECT_EQ(KeepBest(tuning, &pinned).tuning.candidates.size(), 4U);
}

TEST(KeepBest, KeepsNeitherSamplesNorTheirMemory) {
  Tuning tuning = TuningOf({Timed(0, 10)});
  tuning.candidates[0].samples_ns = {10'000, 10'000};
  EXPECT_EQ(KeepBest(tuning, nullptr).tuning.candidates[0].samples_ns.capacity(), 0U);
}

}  // namespace
}  // namespace convtune::lookup
