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
  const std::map<std::string, MethodStats> all = stats.Snapshot();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all.at("convtune.v1.TuningService/BatchGet").started, 1);
  EXPECT_EQ(all.at("convtune.v1.TuningService/Pin").started, 2);
  EXPECT_TRUE(all.at("convtune.v1.TuningService/Pin").ended.empty());
}

TEST(CallStats, DurationsAreKeptByStatus) {
  CallStats stats;
  stats.Started("GetTuning");
  stats.Ended("GetTuning", absl::StatusCode::kNotFound, absl::Milliseconds(2));
  stats.Started("GetTuning");
  stats.Ended("GetTuning", absl::StatusCode::kOk, absl::Seconds(200));
  const std::map<std::string, MethodStats> all = stats.Snapshot();
  ASSERT_EQ(all.size(), 1U);
  const auto& ended = all.at("GetTuning").ended;
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended.at(absl::StatusCode::kOk).counts.back(), 1);  // above 100 s
  EXPECT_EQ(ended.at(absl::StatusCode::kNotFound).sum, 2'000'000);
}

TEST(CallStats, ACodeThatGrpcDoesNotHaveIsUnknown) {
  CallStats stats;
  stats.Started("Pin");
  stats.Ended("Pin", static_cast<absl::StatusCode>(99), absl::Seconds(1));
  EXPECT_EQ(stats.Snapshot().at("Pin").ended.begin()->first, absl::StatusCode::kUnknown);
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
    ASSERT_EQ(stats.Snapshot().at("Pin").ended.at(absl::StatusCode::kOk).count(), 4);
  }
}

}  // namespace
}  // namespace convtune::rpc::services
