#include "server/lookup/answer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lookup/indexed_tuning.h"
#include "tests/unit/candidates.h"

namespace convtune::lookup {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
const ConvProblem kConv = ConvProblem::Parse(kProblem).value();

v1::Answer AnswerOf(const Tuning& tuning, const Constraints& constraints = {},
                    const Pin* pin = nullptr) {
  return MakeAnswer(KeepAll(tuning), pin, constraints, kConv, kNow).answer();
}

int64_t EngineOf(const v1::Candidate& candidate) {
  return candidate.engine_config().engine_index();
}

Pin PinOf(int engine) {
  return {KeyOf(kProblem), EngineConfig{engine, {}}, "known good", kNow - absl::Hours(2),
          std::nullopt};
}

Constraints Workspace(int64_t bytes) {
  Constraints constraints;
  constraints.max_workspace_bytes = bytes;
  return constraints;
}

TEST(MakeAnswer, OneTuningAnswersEveryWorkspaceLimit) {
  const Tuning tuning =
      TuningOf({Timed(0, 30, 0.2, 0), Timed(1, 20, 0.2, 1024), Timed(2, 10, 0.2, 4096)});
  EXPECT_EQ(EngineOf(AnswerOf(tuning).winner()), 2);
  EXPECT_EQ(EngineOf(AnswerOf(tuning, Workspace(4095)).winner()), 1);
  EXPECT_EQ(EngineOf(AnswerOf(tuning, Workspace(0)).winner()), 0);
  EXPECT_EQ(AnswerOf(tuning, Workspace(4095)).eligible_count(), 2);
  EXPECT_EQ(AnswerOf(tuning, Workspace(4095)).candidate_count(), 3);
}

// 1 is the fastest when launched, 2 when replayed; 0 was left behind in the race.
Tuning ReplayedTuning() {
  const auto replay = [](double median) {
    return TimeSummary{
        LaunchMode::kGraphCapture, CacheState::kInputHot, median, median - 0.1, median + 0.1, 12};
  };
  Candidate fast = Timed(1, 10);
  fast.capture = CaptureSupport::kYes;
  fast.other_times = {replay(9)};
  Candidate light = Timed(2, 11);
  light.capture = CaptureSupport::kYes;
  light.other_times = {replay(4)};
  Candidate behind = Timed(0, 30);
  behind.capture = CaptureSupport::kYes;
  Tuning tuning = TuningOf({behind, fast, light});
  tuning.stop_reason = StopReason::kSettled;
  return tuning;
}

TEST(MakeAnswer, GraphLaunchIsRankedByReplays) {
  const Tuning tuning = ReplayedTuning();
  EXPECT_EQ(EngineOf(AnswerOf(tuning).winner()), 1);
  Constraints constraints;
  constraints.launch = LaunchMode::kGraphCapture;
  const v1::Answer answer = AnswerOf(tuning, constraints);
  EXPECT_EQ(EngineOf(answer.winner()), 2);
  EXPECT_EQ(answer.winner().median_us(), 4);
  EXPECT_EQ(answer.eligible_count(), 3);
  EXPECT_EQ(answer.note(), "");
}

TEST(MakeAnswer, SaysThatTimesWereNotTakenInTheStateAskedFor) {
  Constraints constraints;
  constraints.cache_state = CacheState::kCold;
  const v1::Answer answer = AnswerOf(ReplayedTuning(), constraints);
  EXPECT_EQ(EngineOf(answer.winner()), 1);
  EXPECT_THAT(answer.note(), HasSubstr("none were taken in the state asked for"));
}

TEST(MakeAnswer, NoEligibleCandidateIsAMiss) {
  const auto outcome =
      MakeAnswer(KeepAll(TuningOf({Timed(0, 10, 0.2, 1024)})), nullptr, Workspace(0), kConv, kNow);
  EXPECT_EQ(outcome.miss().reason(), v1::MISS_REASON_NO_CANDIDATE);
  EXPECT_EQ(outcome.miss().message(), "none of the 1 candidates that ran keeps to the constraints");
}

TEST(MakeAnswer, OfAGuessNoCandidateIsSaidToHaveRun) {
  const auto outcome =
      MakeAnswer(KeepAll(TuningOf({Finalized(0, 1024)})), nullptr, Workspace(0), kConv, kNow);
  EXPECT_EQ(outcome.miss().message(),
            "none of the 1 candidates that could be built keeps to the constraints");
}

TEST(MakeAnswer, MemoryBudgetIsNoLossBelowWhatItLeftOut) {
  const Tuning tuning = TuningOf(
      {Timed(0, 30, 0.2, 1024), With(Finalized(1, 1 << 20), CandidateStatus::kSkippedMemory)});
  EXPECT_EQ(AnswerOf(tuning).evidence(), v1::EVIDENCE_INCOMPLETE);
  EXPECT_EQ(AnswerOf(tuning, Workspace(1 << 20)).evidence(), v1::EVIDENCE_INCOMPLETE);
  EXPECT_EQ(AnswerOf(tuning, Workspace((1 << 20) - 1)).evidence(), v1::EVIDENCE_MEASURED);
}

TEST(MakeAnswer, OtherLossesStayWhateverTheWorkspaceLimit) {
  const Tuning tuning = TuningOf({Timed(0, 30), With(Finalized(2), CandidateStatus::kSkippedBudget),
                                  With(Finalized(1, 1024), CandidateStatus::kSkippedMemory)});
  EXPECT_EQ(AnswerOf(tuning, Workspace(0)).evidence(), v1::EVIDENCE_INCOMPLETE);
}

TEST(MakeAnswer, PortfolioIsBestThenNeutralThenWithoutWorkspace) {
  Candidate stock = Timed(0, 40, 0.2, 512);
  Candidate best = Timed(1, 10, 0.2, 4096);
  best.numerical_notes = NoteBit(NumericalNote::kWinograd);
  const Candidate neutral = Timed(2, 20, 0.2, 1024);
  const Candidate bare = Timed(3, 30, 0.2, 0);
  const v1::Answer answer = AnswerOf(TuningOf({stock, best, neutral, bare}));
  ASSERT_EQ(answer.portfolio_size(), 3);
  EXPECT_EQ(EngineOf(answer.portfolio()[0]), 1);
  EXPECT_EQ(EngineOf(answer.portfolio()[1]), 2);
  EXPECT_EQ(EngineOf(answer.portfolio()[2]), 3);
}

TEST(MakeAnswer, PortfolioKeepsDeterminismOnlyWhereStockHasIt) {
  Candidate stock = Timed(0, 40, 0.2, 512);
  Candidate loose = Timed(1, 10, 0.2, 512);
  loose.numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  EXPECT_EQ(AnswerOf(TuningOf({stock, loose})).portfolio_size(), 2);
  stock.numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  EXPECT_EQ(AnswerOf(TuningOf({stock, loose})).portfolio_size(), 1);
}

TEST(MakeAnswer, PortfolioHasNoRepetition) {
  EXPECT_EQ(AnswerOf(TuningOf({Timed(0, 10), Timed(1, 30)})).portfolio_size(), 1);
}

TEST(MakeAnswer, NamesTheNextTwoBehindTheWinner) {
  const v1::Answer answer =
      AnswerOf(TuningOf({Timed(0, 40), Timed(1, 30), Timed(2, 20), Timed(3, 10)}));
  EXPECT_EQ(EngineOf(answer.winner()), 3);
  ASSERT_EQ(answer.runners_up_size(), 2);
  EXPECT_EQ(EngineOf(answer.runners_up()[0]), 2);
  EXPECT_EQ(EngineOf(answer.runners_up()[1]), 1);
}

TEST(MakeAnswer, PinOverridesTheRankingAndSaysSo) {
  const Pin pin = PinOf(0);
  const v1::Answer answer = AnswerOf(TuningOf({Timed(0, 30), Timed(1, 10)}), {}, &pin);
  EXPECT_EQ(EngineOf(answer.winner()), 0);
  EXPECT_TRUE(answer.pinned());
  EXPECT_EQ(answer.pin_reason(), "known good");
}

TEST(MakeAnswer, PinAgainstTheConstraintsIsAnsweredAndNoted) {
  const Pin pin = PinOf(0);
  const v1::Answer answer =
      AnswerOf(TuningOf({Timed(0, 30, 0.2, 1024), Timed(1, 10)}), Workspace(0), &pin);
  EXPECT_EQ(EngineOf(answer.winner()), 0);
  EXPECT_THAT(answer.note(), HasSubstr("does not keep to the constraints"));
}

TEST(MakeAnswer, ExpiredPinIsIgnored) {
  Pin pin = PinOf(0);
  pin.expire_time = kNow - absl::Hours(1);
  const v1::Answer answer = AnswerOf(TuningOf({Timed(0, 30), Timed(1, 10)}), {}, &pin);
  EXPECT_EQ(EngineOf(answer.winner()), 1);
  EXPECT_FALSE(answer.pinned());
}

TEST(MakeAnswer, PinOfACandidateThatDidNotRunIsNoted) {
  const Pin pin = PinOf(7);
  const v1::Answer answer = AnswerOf(TuningOf({Timed(0, 30)}), {}, &pin);
  EXPECT_FALSE(answer.pinned());
  EXPECT_THAT(answer.note(), HasSubstr("graph:eng7"));
}

v1::BatchGetResult AnswerUnder(const Bans& bans, const Tuning& tuning,
                               const Constraints& constraints = {}, const Pin* pin = nullptr) {
  return MakeAnswer(KeepAll(tuning, bans), pin, constraints, kConv, kNow);
}

TEST(MakeAnswer, ABannedCandidateIsNowhereInAnAnswerWhichNamesIt) {
  const Tuning tuning =
      TuningOf({Timed(0, 40), Timed(1, 30), Timed(2, 20), Timed(3, 10), Finalized(4)});
  const auto answer = AnswerUnder(BansOfPattern("eng3"), tuning).answer();
  EXPECT_EQ(EngineOf(answer.winner()), 2);
  EXPECT_EQ(answer.eligible_count(), 4);
  ASSERT_TRUE(answer.has_banned());
  EXPECT_EQ(answer.banned().candidate(), "graph:eng3");
  EXPECT_EQ(answer.banned().ban(), "bans/1");
  EXPECT_THAT(answer.note(),
              HasSubstr("graph:eng3 would win, and is banned by bans/1 (wrong results)"));
  for (const v1::Candidate& c : answer.portfolio()) EXPECT_NE(EngineOf(c), 3);
  for (const v1::Candidate& c : answer.runners_up()) EXPECT_NE(EngineOf(c), 3);
}

TEST(MakeAnswer, ABanOfOneThatWouldNotWinIsNotMentioned) {
  const Tuning tuning = TuningOf({Timed(0, 10), Timed(1, 30, 0.2, 4096), Timed(2, 20, 0.2, 4096)});
  const auto answer = AnswerUnder(BansOfPattern("eng2"), tuning).answer();
  EXPECT_EQ(EngineOf(answer.winner()), 0);
  EXPECT_FALSE(answer.has_banned());
  EXPECT_EQ(answer.note(), "");
  EXPECT_EQ(answer.eligible_count(), 2);
}

TEST(MakeAnswer, OnlyTheConstraintsDecideWhetherABanChangesTheWinner) {
  const Tuning tuning = TuningOf({Timed(0, 30), Timed(1, 10, 0.2, 4096)});
  const Bans bans = BansOfPattern("eng1");
  EXPECT_TRUE(AnswerUnder(bans, tuning).answer().has_banned());
  EXPECT_FALSE(AnswerUnder(bans, tuning, Workspace(0)).answer().has_banned());
}

TEST(MakeAnswer, WhereAllIsBannedTheMissSaysSo) {
  const Tuning tuning = TuningOf({Timed(0, 30), Timed(1, 10, 0.2, 4096)});
  const auto all = AnswerUnder(BansOfPattern("graph:*"), tuning).miss();
  EXPECT_EQ(all.reason(), v1::MISS_REASON_NO_CANDIDATE);
  EXPECT_EQ(all.message(), "every candidate is banned by bans/1 (wrong results)");
  EXPECT_EQ(all.banned().candidate(), "graph:eng1");
  const auto small = AnswerUnder(BansOfPattern("eng0"), tuning, Workspace(0)).miss();
  const std::string that_keep =
      "every candidate that keeps to the constraints is banned by bans/1 (wrong results)";
  EXPECT_EQ(small.message(), that_keep);
  EXPECT_EQ(small.banned().candidate(), "graph:eng0");
  EXPECT_EQ(AnswerUnder(BansOfPattern("graph:*"), tuning, Workspace(0)).miss().message(),
            that_keep);
}

TEST(MakeAnswer, WhereOthersAreNotUsableTheMissCountsThem) {
  const Tuning tuning = TuningOf({Timed(0, 30), Timed(1, 10, 0.2, 4096),
                                  With(Finalized(2), CandidateStatus::kSkippedBudget),
                                  With(Finalized(3), CandidateStatus::kUnsupported),
                                  With(Finalized(4), CandidateStatus::kSkippedBudget)});
  Bans bans = BansOfPattern("eng0");
  std::vector<Bans::Shared> both = bans.all();
  both.push_back(BansOfPattern("eng1", 2).all()[0]);
  bans = Bans(both);
  for (const bool whole : {true, false}) {
    const auto message = [&](const Bans& held, const Constraints& constraints) {
      const IndexedTuning indexed = whole ? KeepAll(tuning, held) : KeepBest(tuning, nullptr, held);
      return MakeAnswer(indexed, nullptr, constraints, kConv, kNow).miss().message();
    };
    EXPECT_EQ(message(bans, {}),
              "every usable candidate is banned by bans/1 (wrong results), bans/2 (wrong results); "
              "not banned, but not usable: 1 unsupported, 2 skipped_budget");
    EXPECT_EQ(message(bans, Workspace(0)),
              "every usable candidate that keeps to the constraints is banned by bans/1 (wrong "
              "results); not banned, but not usable: 1 unsupported, 2 skipped_budget");
    // Of what is banned, too, another tuning would give no answer.
    EXPECT_EQ(message(BansOfPattern("graph:*"), {}),
              "every candidate is banned by bans/1 (wrong results)");
  }
}

TEST(MakeAnswer, AConstraintThatNothingKeepsToIsNoBansDoing) {
  const Tuning tuning = TuningOf({Timed(0, 30, 0.2, 1024), Timed(1, 10, 0.2, 4096)});
  const auto miss = AnswerUnder(BansOfPattern("eng1"), tuning, Workspace(0)).miss();
  EXPECT_THAT(miss.message(), HasSubstr("none of the 2 candidates that ran"));
  EXPECT_FALSE(miss.has_banned());
}

TEST(MakeAnswer, ABanGoesBeforeAPin) {
  const Pin pin = PinOf(0);
  const Tuning tuning = TuningOf({Timed(0, 30), Timed(1, 10)});
  const auto answer = AnswerUnder(BansOfPattern("eng0"), tuning, {}, &pin).answer();
  EXPECT_EQ(EngineOf(answer.winner()), 1);
  EXPECT_FALSE(answer.pinned());
  EXPECT_EQ(answer.banned().candidate(), "graph:eng0");
  EXPECT_EQ(answer.note(), "the pinned candidate graph:eng0 is banned by bans/1 (wrong results)");
}

TEST(MakeAnswer, ABannedStockChoiceGuardsNothing) {
  // The stock choice ties with the fastest, and would win.
  const Tuning tuning = TuningOf({Timed(0, 10.1), Timed(1, 10)});
  EXPECT_EQ(EngineOf(AnswerOf(tuning).winner()), 0);
  EXPECT_EQ(EngineOf(AnswerUnder(BansOfPattern("eng0"), tuning).answer().winner()), 1);
}

TEST(MakeAnswer, ALegacyAlgorithmHasTheNameThatItHasInTheOperation) {
  const Tuning tuning = TuningOf({AsLegacy(Timed(0, 30), 1, 0)});
  EXPECT_EQ(AnswerOf(tuning).winner().legacy_algorithm().algorithm_name(),
            LegacyAlgorithmName(Operation::kFwd, 1));
  const ConvProblem backward =
      ConvProblem::Parse("bwd_data,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16").value();
  EXPECT_EQ(MakeAnswer(KeepAll(tuning), nullptr, {}, backward, kNow)
                .answer()
                .winner()
                .legacy_algorithm()
                .algorithm_name(),
            LegacyAlgorithmName(Operation::kBwdData, 1));
}

TEST(MakeAnswer, SaysWhenAndWhereItWasTuned) {
  Tuning tuning = TuningOf({Timed(0, 30)});
  tuning.tune_time = absl::UnixEpoch() + absl::Milliseconds(1500);
  tuning.origin = Origin::kFleet;
  const v1::Answer answer = AnswerOf(tuning);
  EXPECT_EQ(answer.tune_time().seconds(), 1);
  EXPECT_EQ(answer.tune_time().nanos(), 500'000'000);
  EXPECT_EQ(answer.origin(), v1::ORIGIN_FLEET);
  EXPECT_EQ(answer.tuning_id(), tuning.key.Digest().ToString());
  EXPECT_EQ(answer.environment_text(), "");
}

TEST(MakeAnswer, NoteSaysWhyTheEvidenceIsLow) {
  EXPECT_EQ(AnswerOf(TuningOf({Timed(0, 30)})).note(), "");
  EXPECT_THAT(AnswerOf(TuningOf({Finalized(0)})).note(), HasSubstr("nothing was timed"));
  EXPECT_THAT(AnswerOf(TuningOf({Timed(0, 30)}, {.listing_cut = true})).note(),
              HasSubstr("listing"));
}

TEST(MakeAnswer, AnUnjudgedStockChoiceIsNoBetterThanTheHeuristic) {
  Tuning tuning = TuningOf({Timed(0, 10), Timed(1, 20), AsLegacy(Timed(0, 30), 1, 0)});
  tuning.evidence = Evidence::kIncomplete;
  AddReason(IncompleteReason::kGraphStockUnjudged, "the stock choice could not be judged", &tuning);
  const v1::Answer stock = AnswerOf(tuning);
  EXPECT_EQ(EngineOf(stock.winner()), 0);
  EXPECT_EQ(stock.evidence(), v1::EVIDENCE_HEURISTIC);
  EXPECT_THAT(stock.note(), HasSubstr("the stock choice could not be judged"));
  Constraints legacy;
  legacy.api = Api::kLegacy;
  EXPECT_EQ(AnswerOf(tuning, legacy).evidence(), v1::EVIDENCE_INCOMPLETE);
}

}  // namespace
}  // namespace convtune::lookup
