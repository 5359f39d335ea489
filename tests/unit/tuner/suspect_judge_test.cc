#include "server/tuner/suspect_judge.h"

#include "gtest/gtest.h"

namespace convtune {
namespace {

TEST(QuarantineReasonTest, TheBudgetOfAHangIsReadBack) {
  const WorkerLoss loss{"hung: no reply within the request's own budget and 30s", false, true, 2};
  for (const absl::Duration budget :
       {absl::Milliseconds(1500), absl::Seconds(30), absl::Hours(2), absl::Nanoseconds(1)}) {
    const std::string reason = QuarantineReason(loss, budget);
    EXPECT_EQ(HangBudget(reason), budget) << reason;
  }
  EXPECT_EQ(QuarantineReason(loss, absl::Seconds(2)),
            "hung with a budget of 2s: no reply within the request's own budget and 30s");
}

TEST(QuarantineReasonTest, ADeathHasNoBudget) {
  const WorkerLoss loss{"signal 11 (SIGSEGV)", false, false, 2};
  EXPECT_EQ(QuarantineReason(loss, absl::Seconds(2)),
            "took its worker down twice: signal 11 (SIGSEGV)");
  EXPECT_EQ(HangBudget(QuarantineReason(loss, absl::Seconds(2))), std::nullopt);
}

TEST(QuarantineReasonTest, WhatIsNotARecordedBudgetHoldsForEveryBudget) {
  for (const char* reason : {"", "hung with a budget of soon: no reply", "hung for 30s",
                             "took its worker down twice: hung: no reply"}) {
    EXPECT_EQ(HangBudget(reason), std::nullopt) << reason;
  }
}

}  // namespace
}  // namespace convtune
