#include "server/rpc/services/call_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace convtune::rpc::services {
namespace {

TEST(CallStats, CallsAreCountedByMethod) {
  CallStats stats;
  stats.Started("convtune.v1.TuningService/Pin");
  stats.Started("convtune.v1.TuningService/BatchGet");
  stats.Started("convtune.v1.TuningService/Pin");
  const std::vector<MethodStats> all = stats.Snapshot();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].method, "convtune.v1.TuningService/BatchGet");
  EXPECT_EQ(all[0].started, 1);
  EXPECT_EQ(all[1].started, 2);
  EXPECT_TRUE(all[1].ended.empty());
}

TEST(CallStats, DurationsAreKeptByStatus) {
  CallStats stats;
  stats.Started("GetTuning");
  stats.Ended("GetTuning", absl::StatusCode::kNotFound, absl::Milliseconds(2));
  stats.Started("GetTuning");
  stats.Ended("GetTuning", absl::StatusCode::kOk, absl::Seconds(200));
  const std::vector<MethodStats> all = stats.Snapshot();
  ASSERT_EQ(all.size(), 1U);
  ASSERT_EQ(all[0].ended.size(), 2U);
  EXPECT_EQ(all[0].ended[0].status, "OK");
  EXPECT_EQ(all[0].ended[0].duration.counts.back(), 1);  // above 100 s
  EXPECT_EQ(all[0].ended[1].status, "NOT_FOUND");
  EXPECT_EQ(all[0].ended[1].duration.sum, 2'000'000);
}

TEST(CallStats, ACodeThatGrpcDoesNotHaveIsUnknown) {
  CallStats stats;
  stats.Started("Pin");
  stats.Ended("Pin", static_cast<absl::StatusCode>(99), absl::Seconds(1));
  EXPECT_EQ(stats.Snapshot()[0].ended[0].status, "UNKNOWN");
}

TEST(CallStats, CallsEndOnSeveralThreads) {
  for (int round = 0; round < 50; ++round) {
    CallStats stats;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&stats] {
        stats.Started("Pin");
        stats.Ended("Pin", absl::StatusCode::kOk, absl::Microseconds(3));
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(stats.Snapshot()[0].ended[0].duration.count(), 4);
  }
}

}  // namespace
}  // namespace convtune::rpc::services
