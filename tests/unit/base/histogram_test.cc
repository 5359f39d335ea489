#include "proto/base/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace convtune {
namespace {

using ::testing::ElementsAre;

constexpr std::array<int64_t, 2> kBounds = {10, 100};

TEST(Histogram, BoundsAreInclusiveAndWhatIsAboveIsKept) {
  Histogram histogram(kBounds);
  for (const int64_t value : {0, 10, 11, 100, 101, 5000}) histogram.Record(value);
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_THAT(snapshot.counts, ElementsAre(2, 2, 2));
  EXPECT_EQ(snapshot.count(), 6);
  EXPECT_EQ(snapshot.sum, 5222);
}

TEST(Histogram, LosesNothingUnderThreads) {
  Histogram histogram(kBounds);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < 10'000; ++i) histogram.Record(i % 200);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Snapshot().count(), 40'000);
  EXPECT_EQ(histogram.Snapshot().sum, 4 * 50 * (199 * 200 / 2));
}

}  // namespace
}  // namespace convtune
