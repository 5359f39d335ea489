#include "proto/model/tuning.h"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>

namespace convtune {
namespace {

Tuning Make(Evidence evidence, int samples, int64_t seconds) {
  Tuning tuning;
  tuning.evidence = evidence;
  tuning.tune_time = absl::FromUnixSeconds(seconds);
  Candidate candidate;
  candidate.sample_count = samples;
  tuning.candidates = {candidate, candidate};
  return tuning;
}

TEST(SupersedesTest, BetterEvidenceWinsWhateverElse) {
  EXPECT_TRUE(Supersedes(Make(Evidence::kMeasured, 1, 1), Make(Evidence::kIncomplete, 900, 900)));
  EXPECT_FALSE(Supersedes(Make(Evidence::kHeuristic, 900, 900), Make(Evidence::kObserved, 1, 1)));
}

TEST(SupersedesTest, BetweenEqualsMoreSamplesWin) {
  EXPECT_TRUE(Supersedes(Make(Evidence::kMeasured, 20, 1), Make(Evidence::kMeasured, 10, 2)));
  EXPECT_FALSE(Supersedes(Make(Evidence::kMeasured, 10, 2), Make(Evidence::kMeasured, 20, 1)));
}

TEST(SupersedesTest, ThenTheNewerWins) {
  EXPECT_TRUE(Supersedes(Make(Evidence::kMeasured, 10, 2), Make(Evidence::kMeasured, 10, 1)));
  EXPECT_FALSE(Supersedes(Make(Evidence::kMeasured, 10, 1), Make(Evidence::kMeasured, 10, 2)));
}

TEST(SupersedesTest, AnEqualOneDoesNotReplace) {
  EXPECT_FALSE(Supersedes(Make(Evidence::kMeasured, 10, 1), Make(Evidence::kMeasured, 10, 1)));
}

TEST(SupersedesTest, FirstConfigsNeverReplaceAFullListing) {
  const Tuning full = Make(Evidence::kHeuristic, 0, 1);
  Tuning first = Make(Evidence::kHeuristic, 0, 900);
  AddReason(IncompleteReason::kFirstConfigsOnly, "the first configs alone", &first);
  EXPECT_FALSE(Supersedes(first, full));
  EXPECT_FALSE(Supersedes(first, full, /*forced=*/true));
  EXPECT_TRUE(Supersedes(full, first));
}

TEST(SupersedesTest, AContendedMeasurementNeverReplacesACleanOne) {
  const Tuning clean = Make(Evidence::kIncomplete, 1, 1);
  Tuning contended = Make(Evidence::kIncomplete, 900, 900);
  contended.conditions.known = true;
  contended.conditions.other_processes = 2;
  EXPECT_FALSE(Supersedes(contended, clean));
  EXPECT_FALSE(Supersedes(contended, clean, /*forced=*/true));
  EXPECT_TRUE(Supersedes(clean, contended));
  contended.evidence = Evidence::kMeasured;  // evidence counts first
  EXPECT_TRUE(Supersedes(contended, clean));
}

TEST(SupersedesTest, MoreMemoryCountsMoreThanMoreSamples) {
  Tuning narrow = Make(Evidence::kIncomplete, 900, 900);
  narrow.memory_budget_bytes = 1 << 20;
  Tuning wide = Make(Evidence::kIncomplete, 1, 1);
  for (const int64_t budget : {int64_t{0}, int64_t{2} << 20}) {
    wide.memory_budget_bytes = budget;
    EXPECT_TRUE(Supersedes(wide, narrow));
    EXPECT_FALSE(Supersedes(narrow, wide));
  }
  wide.memory_budget_bytes = narrow.memory_budget_bytes;
  EXPECT_TRUE(Supersedes(narrow, wide));
}

TEST(SupersedesTest, AForcedTuningReplacesTheSameStandingButNotABetterOne) {
  const Tuning many = Make(Evidence::kMeasured, 900, 900);
  Tuning few = Make(Evidence::kMeasured, 1, 1);
  few.memory_budget_bytes = 1;
  EXPECT_FALSE(Supersedes(few, many));
  EXPECT_TRUE(Supersedes(few, many, /*forced=*/true));
  EXPECT_FALSE(Supersedes(Make(Evidence::kHeuristic, 1, 1), many, /*forced=*/true));
}

TEST(ReadReasonsOfWordsTest, EveryReasonThatWasASentenceIsRead) {
  const std::pair<const char*, uint32_t> cases[] = {
      {"", 0},
      {"heuristic look-up: first configs only", ReasonBit(IncompleteReason::kFirstConfigsOnly)},
      {"the budget ended before 3 candidates", ReasonBit(IncompleteReason::kBudgetEnded)},
      {"the budget or the candidate limit ended the listing; skipped for memory: 1 candidate",
       ReasonBit(IncompleteReason::kListingCut) | ReasonBit(IncompleteReason::kMemory)},
      {"only one of cuDNN's APIs was searched; the other API's candidates are of a tuning before",
       ReasonBit(IncompleteReason::kOneApi) | ReasonBit(IncompleteReason::kOtherApiCarried)},
      {"contended: 2 other processes on the GPU; not timed: 2 candidates",
       ReasonBit(IncompleteReason::kConditions) | ReasonBit(IncompleteReason::kNotTimed)},
      {"uncorrected ECC errors: 1", ReasonBit(IncompleteReason::kConditions)},
      {"all candidates that ran are quarantined", ReasonBit(IncompleteReason::kAllQuarantined)},
      {"settled on by a program; nothing else was tried", ReasonBit(IncompleteReason::kObserved)},
  };
  for (const auto& [words, reasons] : cases) {
    Tuning tuning = Make(Evidence::kIncomplete, 1, 1);
    tuning.incomplete_reason = words;
    ReadReasonsOfWords(&tuning);
    EXPECT_EQ(tuning.incomplete, reasons) << words;
    EXPECT_EQ(tuning.evidence, Evidence::kIncomplete);
    EXPECT_EQ(tuning.incomplete_reason, words);
  }
}

TEST(ReadReasonsOfWordsTest, WhatCouldNotBeJudgedIsNoBetterThanTheHeuristic) {
  Tuning tuning = Make(Evidence::kIncomplete, 1, 1);
  tuning.incomplete_reason =
      "results could not be judged: 8 of 8 candidates differ from the reference";
  ReadReasonsOfWords(&tuning);
  EXPECT_EQ(tuning.incomplete, ReasonBit(IncompleteReason::kUnjudged));
  EXPECT_EQ(tuning.evidence, Evidence::kHeuristic);
}

TEST(ReadReasonOfMessageTest, EveryMessageThatWasWrittenIsRead) {
  const std::tuple<const char*, QuarantineReason, absl::Duration> cases[] = {
      {"illegal address", QuarantineReason::kCrashed, absl::ZeroDuration()},
      {"took its worker down twice: hung: no reply", QuarantineReason::kCrashed,
       absl::ZeroDuration()},
      {"hung with a budget of 1.5s: no reply", QuarantineReason::kHung, absl::Milliseconds(1500)},
      {"hung with a budget of soon: no reply", QuarantineReason::kCrashed, absl::ZeroDuration()},
      {"its result is wrong: it differs from the reference by 1 of the largest value",
       QuarantineReason::kWrongResult, absl::ZeroDuration()},
      {"left 3 elements of its output NaN, infinite or not written", QuarantineReason::kNotFinite,
       absl::ZeroDuration()},
      {"wrote outside of its memory: output: 4 bytes behind its end",
       QuarantineReason::kOutOfBounds, absl::ZeroDuration()},
  };
  for (const auto& [message, reason, budget] : cases) {
    QuarantineEntry entry;
    entry.message = message;
    ReadReasonOfMessage(&entry);
    EXPECT_EQ(entry.reason, reason) << message;
    EXPECT_EQ(entry.hang_budget, budget) << message;
    EXPECT_EQ(entry.checker_version, 0);
  }
}

TEST(HoldsForTest, ALongerBudgetTriesWhatHungAgain) {
  QuarantineEntry entry;
  entry.reason = QuarantineReason::kHung;
  entry.hang_budget = absl::Seconds(2);
  entry.checker_version = 3;
  EXPECT_TRUE(entry.HoldsFor(absl::Seconds(1), 3));
  EXPECT_TRUE(entry.HoldsFor(absl::Seconds(2), 3));
  EXPECT_FALSE(entry.HoldsFor(absl::Milliseconds(2001), 3));
  entry.reason = QuarantineReason::kCrashed;
  entry.hang_budget = absl::ZeroDuration();
  EXPECT_TRUE(entry.HoldsFor(absl::Hours(1), 3));
}

TEST(HoldsForTest, AWorkerOfANewerVersionTriesAgain) {
  for (const QuarantineReason reason : {QuarantineReason::kCrashed, QuarantineReason::kWrongResult,
                                        QuarantineReason::kOutOfBounds}) {
    QuarantineEntry entry;
    entry.reason = reason;
    entry.checker_version = 3;
    EXPECT_TRUE(entry.HoldsFor(absl::Seconds(1), 2));
    EXPECT_TRUE(entry.HoldsFor(absl::Seconds(1), 3));
    EXPECT_FALSE(entry.HoldsFor(absl::Seconds(1), 4));
  }
}

}  // namespace
}  // namespace convtune
