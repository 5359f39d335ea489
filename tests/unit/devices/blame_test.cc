#include "server/devices/device_runner.h"

#include "gtest/gtest.h"

namespace convtune::devices {
namespace {

TEST(BlameTest, AHangIsKeptWithItsBudget) {
  const WorkerLoss loss{"hung: no reply within the request's own budget and 30s", false, true, 2};
  const QuarantineEntry entry = Blame(EngineConfig{2, {}}, loss, absl::Seconds(2), 5);
  EXPECT_EQ(entry.candidate, CandidateId(EngineConfig{2, {}}));
  EXPECT_EQ(entry.reason, QuarantineReason::kHung);
  EXPECT_EQ(entry.hang_budget, absl::Seconds(2));
  EXPECT_EQ(entry.checker_version, 5);
  EXPECT_EQ(entry.message,
            "hung with a budget of 2s: no reply within the request's own budget and 30s");
}

TEST(BlameTest, ADeathHasNoBudget) {
  const WorkerLoss loss{"signal 11 (SIGSEGV)", false, false, 2};
  const QuarantineEntry entry = Blame(EngineConfig{2, {}}, loss, absl::Seconds(2), 5);
  EXPECT_EQ(entry.reason, QuarantineReason::kCrashed);
  EXPECT_EQ(entry.hang_budget, absl::ZeroDuration());
  EXPECT_EQ(entry.message, "took its worker down twice: signal 11 (SIGSEGV)");
}

}  // namespace
}  // namespace convtune::devices
