#include "proto/model/tuning/tuning.h"

#include <gtest/gtest.h>

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

TEST(SupersedesTest, BetweenEqualsMoreSamplesWinAndThenTheNewer) {
  const Tuning tuning = Make(Evidence::kMeasured, 10, 2);
  EXPECT_TRUE(Supersedes(Make(Evidence::kMeasured, 20, 1), tuning));
  EXPECT_FALSE(Supersedes(Make(Evidence::kMeasured, 9, 3), tuning));
  EXPECT_TRUE(Supersedes(Make(Evidence::kMeasured, 10, 3), tuning));
  EXPECT_FALSE(Supersedes(Make(Evidence::kMeasured, 10, 1), tuning));
  EXPECT_FALSE(Supersedes(tuning, tuning));
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
