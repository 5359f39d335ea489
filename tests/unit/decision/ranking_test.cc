#include "proto/model/tuning/ranking.h"

#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/decision/evidence.h"
#include "tests/unit/candidates.h"

namespace convtune::decision {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Engines(const std::vector<Candidate>& candidates) {
  std::vector<int64_t> engines;
  for (const Candidate& c : candidates)
    engines.push_back(std::get<EngineConfig>(c.id).engine_index);
  return engines;
}

std::vector<int64_t> Ranked(std::vector<Candidate> candidates) {
  RankCandidates(&candidates);
  return Engines(candidates);
}

TEST(RankCandidates, OrdersTimedByMedianThenFinalizedByRankThenTheRest) {
  EXPECT_THAT(Ranked({With(Finalized(0), CandidateStatus::kUnsupported), Finalized(4), Finalized(3),
                      Timed(2, 30), Timed(1, 10)}),
              ElementsAre(1, 2, 3, 4, 0));
}

TEST(RankCandidates, TiesGoToTheSmallerWorkspace) {
  // 2 is faster than 1, within its spread; 0, the stock choice, is far behind.
  EXPECT_THAT(Ranked({Timed(0, 50), Timed(1, 10.1, 0.4, 0), Timed(2, 10, 0.4, 1024)}),
              ElementsAre(1, 2, 0));
}

TEST(RankCandidates, TiesGoToWhoIsCheaperToLaunchBeforeTheSmallerWorkspace) {
  EXPECT_THAT(Ranked({Timed(0, 50), Launched(Timed(1, 10, 0.4), 9),
                      Launched(Timed(2, 10.1, 0.4, 1024), 6)}),
              ElementsAre(2, 1, 0));
  // By a tenth, or by less than a microsecond, is not cheaper.
  EXPECT_THAT(Ranked({Timed(0, 50), Launched(Timed(1, 10, 0.4), 6.6),
                      Launched(Timed(2, 10.1, 0.4, 1024), 6)}),
              ElementsAre(1, 2, 0));
  EXPECT_THAT(Ranked({Timed(0, 50), Launched(Timed(1, 10, 0.4), 2.9),
                      Launched(Timed(2, 10.1, 0.4, 1024), 2)}),
              ElementsAre(1, 2, 0));
}

TEST(RankCandidates, AnUnknownHostTimeBreaksNoTie) {
  EXPECT_THAT(Ranked({Timed(0, 50), Timed(1, 10, 0.4), Launched(Timed(2, 10.1, 0.4, 1024), 6)}),
              ElementsAre(1, 2, 0));
}

TEST(RankCandidates, AShorterHostTimeDoesNotOutweighTheGpusTime) {
  EXPECT_THAT(
      Ranked({Launched(Timed(0, 50), 2), Launched(Timed(1, 10), 90), Launched(Timed(2, 10.5), 3)}),
      ElementsAre(1, 2, 0));
}

TEST(RankCandidates, StockChoiceIsKeptWithinNoiseThoughItIsDearerToLaunch) {
  EXPECT_THAT(Ranked({Launched(Timed(0, 10.3, 0.4), 90), Launched(Timed(1, 10, 0.4), 3)}),
              ElementsAre(0, 1));
}

TEST(RankCandidates, TiesOfEqualWorkspaceGoToTheDeterministicOne) {
  Candidate nondeterministic = Timed(1, 10, 0.4);
  nondeterministic.numerical_notes = NoteBit(NumericalNote::kNondeterministic);
  EXPECT_THAT(Ranked({Timed(0, 50), nondeterministic, Timed(2, 10.1, 0.4)}), ElementsAre(2, 1, 0));
}

TEST(RankCandidates, TiesOfEqualTraitsGoByText) {
  EXPECT_THAT(Ranked({Timed(0, 50), Timed(2, 10, 0.4), Timed(1, 10.1, 0.4)}), ElementsAre(1, 2, 0));
}

TEST(RankCandidates, StockChoiceIsKeptWithinNoise) {
  EXPECT_THAT(Ranked({Timed(0, 10.3, 0.4, 4096), Timed(1, 10, 0.4)}), ElementsAre(0, 1));
}

TEST(RankCandidates, StockChoiceIsReplacedBeyondNoise) {
  EXPECT_THAT(Ranked({Timed(0, 10.5, 0.4), Timed(1, 10, 0.4)}), ElementsAre(1, 0));
}

TEST(RankCandidates, OneSampleNeverReplacesTheStockChoice) {
  EXPECT_THAT(Ranked({Sampled(Timed(0, 100, 0), 1), Sampled(Timed(1, 10, 0), 1)}),
              ElementsAre(0, 1));
  EXPECT_THAT(Ranked({Timed(0, 100, 0), Sampled(Timed(1, 10, 0), 2)}), ElementsAre(0, 1));
}

TEST(RankCandidates, FewSamplesReplaceTheStockChoiceOnlyWhereItIsFarBehind) {
  EXPECT_THAT(Ranked({Sampled(Timed(0, 12, 0), 7), Sampled(Timed(1, 10, 0), 7)}),
              ElementsAre(0, 1));
  EXPECT_THAT(Ranked({Sampled(Timed(0, 13, 0), 3), Sampled(Timed(1, 10, 0), 3)}),
              ElementsAre(1, 0));
  EXPECT_THAT(Ranked({Sampled(Timed(0, 10.9, 0), 8), Sampled(Timed(1, 10, 0), 8)}),
              ElementsAre(1, 0));
}

TEST(RankCandidates, WhatTiesWithTheFastestButNotWithTheStockChoiceMayWin) {
  // 2 ties with 1, the fastest, and needs less workspace; it is also within
  // noise of the stock choice 0, which is behind 1 beyond noise.
  Candidate fastest = Timed(1, 10, 0.4, 4096);
  Candidate tied = Timed(2, 10.1, 0.4);
  EXPECT_THAT(Ranked({Timed(0, 10.5, 0.5), fastest, tied}), ElementsAre(1, 2, 0));
  EXPECT_THAT(Ranked({Timed(0, 10.8, 0.5), fastest, tied}), ElementsAre(2, 1, 0));
}

TEST(RankCandidates, DoesNotDependOnTheOrderOfTheInput) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<Candidate> candidates = RandomCandidates(&random);
    std::vector<Candidate> shuffled = candidates;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    RankCandidates(&candidates);
    RankCandidates(&shuffled);
    ASSERT_EQ(candidates, shuffled);
  }
}

TEST(FinishTuning, ANumberThatARecordCannotHoldIsTheLargestThatItCan) {
  Tuning tuning;
  tuning.candidates = {Timed(0, 50)};
  tuning.candidates[0].host_us = tuning.candidates[0].sm_clock_mhz = 1e300;
  FinishTuning({}, &tuning);
  EXPECT_EQ(tuning.candidates[0].host_us, std::numeric_limits<float>::max());
  EXPECT_EQ(tuning.candidates[0].sm_clock_mhz, std::numeric_limits<float>::max());
}

TEST(FinishTuning, RanksByTheNumbersThatTheRecordKeeps) {
  // Their intervals touch in the record's floats, and not in doubles.
  Candidate faster = Timed(2, 10, 0.4, 1024);
  Candidate smaller = Timed(1, 10.1, 0.4, 0);
  smaller.low_us = faster.high_us * (1 + 1e-12);
  ASSERT_GT(smaller.low_us, faster.high_us);
  Tuning tuning;
  tuning.candidates = {Timed(0, 50), faster, smaller};
  FinishTuning({}, &tuning);
  EXPECT_THAT(Engines(tuning.candidates), ElementsAre(1, 2, 0));
  for (const Candidate& c : tuning.candidates) {
    EXPECT_EQ(c.low_us, static_cast<float>(c.low_us));
    EXPECT_EQ(c.high_us, static_cast<float>(c.high_us));
  }
}

TEST(FinishTuning, SaysWhatATuningIsWorthAndWhyNotMore) {
  const Candidate late = With(Finalized(1), CandidateStatus::kSkippedBudget);
  const Candidate large = With(Finalized(1, 1024), CandidateStatus::kSkippedMemory);
  const Candidate unsupported = With(Finalized(1), CandidateStatus::kUnsupported);
  using enum IncompleteReason;
  const struct {
    std::vector<Candidate> candidates;
    TuningCircumstances circumstances;
    Evidence evidence;
    uint32_t reasons;
    const char* words;
  } rows[] = {
      {{unsupported}, {}, Evidence::kNone, 0, ""},
      {{Finalized(0)},
       {.first_configs_only = true},
       Evidence::kHeuristic,
       ReasonBit(kFirstConfigsOnly),
       ""},
      {{Timed(0, 10), unsupported}, {}, Evidence::kMeasured, 0, ""},
      {{Timed(0, 10), Finalized(1)}, {}, Evidence::kIncomplete, ReasonBit(kNotTimed), ""},
      {{Timed(0, 10), late},
       {},
       Evidence::kIncomplete,
       ReasonBit(kBudgetEnded),
       "budget ended before 1 candidate"},
      {{Timed(0, 10), large}, {}, Evidence::kIncomplete, ReasonBit(kMemory), ""},
      {{Timed(0, 10)}, {.listing_cut = true}, Evidence::kIncomplete, ReasonBit(kListingCut), ""},
      {{Timed(0, 10)}, {.race_cut = true}, Evidence::kIncomplete, ReasonBit(kBudgetEnded), ""},
      {{Timed(0, 10)}, {.cut_off = true}, Evidence::kIncomplete, ReasonBit(kBudgetEnded), ""},
      {{Timed(0, 10)}, {.one_api = true}, Evidence::kIncomplete, ReasonBit(kOneApi), "APIs"},
      {{Timed(0, 10)}, {.find_left_out = true}, Evidence::kIncomplete, ReasonBit(kFindLeftOut), ""},
  };
  for (const auto& row : rows) {
    const Tuning tuning = TuningOf(row.candidates, row.circumstances);
    SCOPED_TRACE(&row - rows);
    EXPECT_EQ(tuning.evidence, row.evidence);
    EXPECT_EQ(tuning.incomplete_reasons, row.reasons);
    EXPECT_THAT(tuning.incomplete_message, HasSubstr(row.words));
    EXPECT_EQ(tuning.incomplete_message.empty(), tuning.incomplete_reasons == 0);
  }
}

TEST(FinishTuning, AContendedOrThrottledCardMakesItIncomplete) {
  Tuning tuning = TuningOf({Timed(0, 10)});
  tuning.conditions.known = true;
  tuning.conditions.other_processes = 2;
  FinishTuning({}, &tuning);
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("contended: 2 other processes"));
  EXPECT_NE(tuning.incomplete_reasons, ReasonBit(IncompleteReason::kMemory));
}

TEST(CarryOverOtherApi, KeepsWhatTheOtherApiGave) {
  Candidate legacy = Timed(7, 5);
  legacy.id = LegacyAlgorithm{1, 2};
  legacy.heuristic_rank = -1;
  const TuningCircumstances one_api{.one_api = true};
  const Tuning stored = TuningOf({legacy}, one_api);
  Tuning made = TuningOf({Timed(0, 10)}, one_api);
  EXPECT_TRUE(CarryOverOtherApi(stored, &made));
  ASSERT_EQ(made.candidates.size(), 2U);
  EXPECT_EQ(made.candidates[0].id, legacy.id);
  EXPECT_FALSE(CarryOverOtherApi(stored, &made));
}

Tuning WithConditions(Tuning tuning, int other_processes) {
  tuning.conditions.known = true;
  tuning.conditions.other_processes = other_processes;
  return tuning;
}

TEST(CarryOverOtherApi, JoinsOnlyWhatIsAsClean) {
  Candidate legacy = Timed(7, 5);
  legacy.id = LegacyAlgorithm{1, 2};
  const TuningCircumstances one_api{.one_api = true};
  const Tuning stored = WithConditions(TuningOf({legacy}, one_api), 0);
  Tuning contended = WithConditions(TuningOf({Timed(0, 10)}, one_api), 1);
  EXPECT_FALSE(CarryOverOtherApi(stored, &contended));
  Tuning clean = WithConditions(TuningOf({Timed(0, 10)}, one_api), 0);
  clean.conditions.temperature_celsius = 40;
  Tuning warm = stored;
  warm.conditions.temperature_celsius = 70;
  EXPECT_TRUE(CarryOverOtherApi(warm, &clean));
  EXPECT_EQ(clean.conditions.temperature_celsius, 70);
}

TEST(CarryOverOtherApi, WhatTheStoredTuningHasOfTheSameApiIsLost) {
  Candidate legacy = Timed(7, 5);
  legacy.id = LegacyAlgorithm{1, 2};
  const TuningCircumstances cut{.race_cut = true};
  const Tuning both = TuningOf({legacy, Timed(1, 9)}, cut);
  Tuning made = TuningOf({Timed(0, 10)}, {.one_api = true});
  EXPECT_FALSE(CarryOverOtherApi(both, &made));
  EXPECT_EQ(made.candidates[0].id, legacy.id);
}

TEST(NoteQuarantined, MakesAMeasuredTuningOfCulpritsIncomplete) {
  Tuning tuning = TuningOf({Timed(0, 10)});
  NoteQuarantined(&tuning);
  EXPECT_EQ(tuning.evidence, Evidence::kMeasured);
  tuning.candidates[0].status = CandidateStatus::kQuarantined;
  NoteQuarantined(&tuning);
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("quarantined"));
}

TEST(FinishTuning, WhatCouldNotBeJudgedIsNeverAboveTheHeuristic) {
  TuningCircumstances circumstances;
  circumstances.doubt = {4, /*none_is_right=*/true, true, false, "all differ"};
  const Tuning tuning =
      TuningOf({Finalized(0), With(Finalized(1), CandidateStatus::kUnjudged)}, circumstances);
  EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
  EXPECT_TRUE(tuning.has(IncompleteReason::kUnjudged));
  EXPECT_TRUE(tuning.has(IncompleteReason::kGraphStockUnjudged));
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("no result could be judged"));
  // Not even where something was timed.
  EXPECT_EQ(TuningOf({Timed(0, 10)}, circumstances).evidence, Evidence::kHeuristic);
}

TEST(FinishTuning, SomeUnjudgedCandidatesMakeItIncomplete) {
  TuningCircumstances circumstances;
  circumstances.doubt = {1, false, false, false, "3 of 8 engines differ"};
  const Tuning tuning =
      TuningOf({Timed(0, 10), With(Finalized(1), CandidateStatus::kUnjudged)}, circumstances);
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_EQ(tuning.incomplete_reasons, ReasonBit(IncompleteReason::kSomeUnjudged));
  EXPECT_THAT(tuning.incomplete_message,
              HasSubstr("could not be judged: 1 candidate (3 of 8 engines differ)"));
}

TEST(FinishTuning, ALostStockChoiceMakesItIncomplete) {
  for (const CandidateStatus status : {CandidateStatus::kFailed, CandidateStatus::kQuarantined}) {
    const Tuning tuning = TuningOf({With(Finalized(0), status), Timed(1, 10), Timed(2, 12)});
    EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
    EXPECT_EQ(tuning.incomplete_reasons, ReasonBit(IncompleteReason::kStockFailed));
    EXPECT_THAT(tuning.incomplete_message, HasSubstr("first for the graph API failed"));
  }
  // Not one behind it, nor one that cuDNN refuses: that was never its choice.
  EXPECT_EQ(TuningOf({Timed(0, 10), With(Finalized(1), CandidateStatus::kFailed)}).evidence,
            Evidence::kMeasured);
  EXPECT_EQ(TuningOf({With(Finalized(0), CandidateStatus::kUnsupported), Timed(1, 10)}).evidence,
            Evidence::kMeasured);
}

TEST(FinishTuning, TheLegacyApisStockChoiceIsLostByItself) {
  const Tuning tuning =
      TuningOf({Timed(0, 10), AsLegacy(With(Finalized(0), CandidateStatus::kFailed), 1, 0),
                AsLegacy(Timed(1, 12), 2, 1)});
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_THAT(tuning.incomplete_message, HasSubstr("first for the legacy API failed"));
}

TEST(NoteQuarantined, AMeasuredTuningThatLosesItsStockChoiceSaysSo) {
  Tuning tuning = TuningOf({Timed(0, 10), Timed(1, 12)});
  ASSERT_EQ(tuning.evidence, Evidence::kMeasured);
  for (Candidate& candidate : tuning.candidates) {
    if (candidate.heuristic_rank == 0) candidate.status = CandidateStatus::kQuarantined;
  }
  NoteQuarantined(&tuning);
  EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
  EXPECT_EQ(tuning.incomplete_reasons, ReasonBit(IncompleteReason::kStockFailed));
  const std::string words = tuning.incomplete_message;
  NoteQuarantined(&tuning);
  EXPECT_EQ(tuning.incomplete_message, words);
}

TEST(IsUnjudgedStock, IsTheFirstOfTheApiThatTheReasonNames) {
  const std::vector<Candidate> candidates = {Timed(1, 5), Timed(0, 10),
                                             AsLegacy(Timed(0, 9), 1, 0)};
  const uint32_t graph = ReasonBit(IncompleteReason::kGraphStockUnjudged);
  EXPECT_TRUE(IsUnjudgedStock(candidates[1], graph, candidates));
  EXPECT_FALSE(IsUnjudgedStock(candidates[0], graph, candidates));
  EXPECT_FALSE(IsUnjudgedStock(candidates[2], graph, candidates));
  EXPECT_FALSE(IsUnjudgedStock(candidates[1], 0, candidates));
  EXPECT_TRUE(IsUnjudgedStock(candidates[2], ReasonBit(IncompleteReason::kLegacyStockUnjudged),
                              candidates));
}

}  // namespace
}  // namespace convtune::decision
