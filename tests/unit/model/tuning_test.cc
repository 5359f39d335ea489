#include "proto/model/tuning.h"

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
