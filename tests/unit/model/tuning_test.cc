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

}  // namespace
}  // namespace convtune
