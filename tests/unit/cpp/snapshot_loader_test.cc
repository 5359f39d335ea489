#include "client/cpp/snapshot_loader.h"
#include "proto/base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

namespace convtune::client {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

// A file that is not there before it is let go.
class SnapshotLoaderTest : public ::testing::Test {
 protected:
  SnapshotLoader Loader() const { return SnapshotLoader("/nonexistent", Open()); }
  SnapshotLoader::Open Open() const {
    // The thread may outlive the test.
    return [reads = reads_, let_go = let_go_](const std::string&) {
      ++*reads;
      let_go.wait();
      return absl::StatusOr<std::unique_ptr<SnapshotAnswers>>(absl::DataLossError("read"));
    };
  }
  void TearDown() override {
    if (!gone_) release_.set_value();
  }
  void LetGo() {
    release_.set_value();
    gone_ = true;
  }

  std::promise<void> release_;
  std::shared_future<void> let_go_ = release_.get_future().share();
  bool gone_ = false;
  std::shared_ptr<std::atomic<int>> reads_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(SnapshotLoaderTest, WhoWantsItWaitsNoLongerThanItsDeadline) {
  SnapshotLoader loader = Loader();
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(loader.Get(SteadyTime::Now() + absl::Milliseconds(5)).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(loader.Get(SteadyTime::InfinitePast()).status()));
  EXPECT_LE(*reads_, 1);
  LetGo();
  EXPECT_TRUE(absl::IsDataLoss(loader.Get(SteadyTime::Now() + kLong).status()));
}

TEST_F(SnapshotLoaderTest, WhatWasReadBeforeItWasWishedForIsReadAnew) {
  LetGo();
  SnapshotLoader loader = Loader();
  EXPECT_TRUE(absl::IsDataLoss(loader.Get(SteadyTime::Now() + kLong).status()));
  EXPECT_TRUE(absl::IsDataLoss(loader.Get(SteadyTime::Now() + kLong).status()));
  EXPECT_EQ(*reads_, 2);
}

TEST_F(SnapshotLoaderTest, ItsEndDoesNotWaitForAReadThatHangs) {
  auto loader = std::make_unique<SnapshotLoader>("/nonexistent", Open());
  EXPECT_FALSE(loader->Get(SteadyTime::Now() + absl::Milliseconds(5)).ok());
  loader.reset();
  EXPECT_LE(*reads_, 1);
}

}  // namespace
}  // namespace convtune::client
