#include "server/devices/gpu_turn.h"

#include <thread>

#include "gtest/gtest.h"

namespace convtune::devices {
namespace {

TEST(GpuTurnTest, WhoAskedFirstIsFirst) {
  GpuTurn turn;
  const auto cancel = CancelToken::Create().value();
  const int a = 0, b = 0;
  ASSERT_TRUE(turn.Await(&a, cancel.get()));
  EXPECT_TRUE(turn.Await(&a, cancel.get()));
  EXPECT_FALSE(turn.Wanted(&a, absl::ZeroDuration()));
  std::thread second([&] { EXPECT_TRUE(turn.Await(&b, cancel.get())); });
  while (!turn.Wanted(&a, absl::ZeroDuration())) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_FALSE(turn.Wanted(&a, absl::Hours(1)));
  turn.GiveBack(&b);  // it has not got it
  EXPECT_TRUE(turn.Wanted(&a, absl::ZeroDuration()));
  turn.GiveBack(&a);
  // Now the other's, even where the first asks at once.
  std::thread again([&] { EXPECT_TRUE(turn.Await(&a, cancel.get())); });
  second.join();
  EXPECT_TRUE(turn.Await(&b, cancel.get()));
  turn.GiveBack(&b);
  again.join();
}

TEST(GpuTurnTest, WhoIsCancelledWaitsNoMore) {
  GpuTurn turn;
  const auto cancel = CancelToken::Create().value();
  const auto cancelled = CancelToken::Create().value();
  cancelled->Cancel();
  const int a = 0, b = 0;
  EXPECT_FALSE(turn.Await(&b, cancelled.get()));
  ASSERT_TRUE(turn.Await(&a, cancel.get()));
  EXPECT_FALSE(turn.Await(&b, cancelled.get()));
  EXPECT_FALSE(turn.Wanted(&a, absl::ZeroDuration()));
}

}  // namespace
}  // namespace convtune::devices
