#include "proto/model/tuning/warm_summary.h"

#include <gtest/gtest.h>

namespace convtune {
namespace {

TEST(WarmSummaryTest, WhatIsNotPublishedIsCountedByEvidence) {
  WarmSummary summary;
  summary.environment = "nvidia-h200";
  summary.problems = summary.hits = 5;
  EXPECT_EQ(summary.Verdict(), "the model is warm");
  summary.publish_evidence = Evidence::kObserved;
  for (int i = 0; i < 4; ++i) summary.AddUnkept(Evidence::kHeuristic, false, true, false);
  summary.AddUnkept(Evidence::kHeuristic, /*pinned=*/true, true, false);
  EXPECT_TRUE(summary.warm());
  EXPECT_EQ(summary.ToText(),
            "nvidia-h200: 5 problems: 5 had an answer, 0 were tuned, 0 have none\n"
            "not published: 4 of 5: heuristic < observed (--publish-evidence): `convtune run` "
            "serves none of them");
  EXPECT_EQ(summary.Verdict(), "the model is warm for programs that ask the daemon");
}

TEST(WarmSummaryTest, WithoutAnAnswerOrItsPlaceOnDiskTheModelIsNotWarm) {
  WarmSummary failed;
  failed.problems = 2;
  failed.AddFailure("cuDNN lists nothing", "fwd,a");
  failed.AddFailure("cuDNN lists nothing", "fwd,b");
  EXPECT_EQ(failed.Verdict(), "the model is not warm");
  EXPECT_EQ(failed.ToText(),
            ": 2 problems: 0 had an answer, 0 were tuned, 2 have none\n"
            "  2 x cuDNN lists nothing, first fwd,a");
  WarmSummary unkept;
  unkept.problems = unkept.tuned = 2;
  unkept.AddUnkept(Evidence::kMeasured, false, /*persisted=*/false, /*stands_in=*/true);
  EXPECT_TRUE(unkept.warm());
  unkept.AddUnkept(Evidence::kMeasured, false, /*persisted=*/false, false);
  EXPECT_EQ(unkept.not_on_disk, 1);
  EXPECT_FALSE(unkept.warm());
}

}  // namespace
}  // namespace convtune
