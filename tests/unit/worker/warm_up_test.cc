#include "server/worker/warm_up.h"

#include <gtest/gtest.h>

#include "server/worker/lanes.h"
#include "tests/unit/worker/fake_backend.h"

namespace convtune {
namespace {

TEST(WarmUpTest, OnACardEveryLaneBuildsThePlanThatCanBeBuilt) {
  FakeBackend backend;
  backend.Add(1).prepare = absl::UnimplementedError("not supported");
  backend.Add(2);
  EXPECT_TRUE(WarmUp(&backend).ok());
  EXPECT_EQ(backend.options.lanes, LaneCount(0));
  EXPECT_EQ(backend.prepared_by[0], 2);
  for (int lane = 1; lane < LaneCount(0); ++lane) {
    EXPECT_EQ(backend.prepared_by[static_cast<size_t>(lane)], 1) << lane;
  }
  EXPECT_TRUE(backend.runs.empty());
  EXPECT_EQ(backend.open_problems, 0);
}

TEST(WarmUpTest, WithoutACardOneIsEnough) {
  FakeBackend backend;
  backend.has_gpu_ = false;
  backend.Add(1);
  EXPECT_TRUE(WarmUp(&backend).ok());
  EXPECT_EQ(backend.prepared_by[0], 1);
  EXPECT_EQ(backend.prepared_by[1], 0);
}

TEST(WarmUpTest, WhereNothingCanBeBuiltNothingIsTriedTwice) {
  FakeBackend backend;
  backend.Add(1).prepare = absl::UnimplementedError("not supported");
  EXPECT_TRUE(WarmUp(&backend).ok());
  EXPECT_EQ(backend.prepared_by[0], 1);
  EXPECT_EQ(backend.prepared_by[1], 0);
}

}  // namespace
}  // namespace convtune
