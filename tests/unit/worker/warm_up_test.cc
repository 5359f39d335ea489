#include "server/worker/session.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/fake_backend.h"

namespace convtune::worker {
namespace {

TEST(WarmUpTest, BuildsTheFirstPlanThatCanBeBuiltAndRunsNothing) {
  FakeBackend backend;
  backend.Add(1).prepare = absl::UnimplementedError("not supported");
  backend.Add(2);
  backend.Add(3);
  EXPECT_TRUE(WarmUp(&backend).ok());
  EXPECT_EQ(backend.prepared, 2);
  EXPECT_TRUE(backend.runs.empty());
  EXPECT_EQ(backend.open_problems, 0);
}

TEST(WarmUpTest, WhereNothingCanBeBuiltNothingIsTriedTwice) {
  FakeBackend backend;
  backend.Add(1).prepare = absl::UnimplementedError("not supported");
  EXPECT_EQ(WarmUp(&backend), absl::UnavailableError("nothing can be run: not supported"));
  EXPECT_EQ(backend.prepared, 1);
}

}  // namespace
}  // namespace convtune::worker
