// A Histogram counts values by size, for metrics.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace convtune {

// The content of a histogram at one moment. Value type.
struct HistogramSnapshot {
  std::vector<int64_t> bounds;  // upper ones, inclusive, ascending
  std::vector<int64_t> counts;  // of each bound's own bucket, then of what is above the last
  int64_t sum = 0;              // of all values

  int64_t count() const {
    int64_t total = 0;
    for (const int64_t c : counts) total += c;
    return total;
  }
};

// Values are whole numbers of a unit that the owner knows. Thread-safe: recording
// is two relaxed additions, so that a snapshot taken meanwhile may have the sum of
// one value more or less than its counts.
class Histogram {
 public:
  static constexpr size_t kMostBounds = 48;

  // `bounds` ascend, are at most kMostBounds, and outlive the histogram.
  explicit Histogram(std::span<const int64_t> bounds)
      : bounds_(bounds.first(std::min(bounds.size(), kMostBounds))) {}
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  void Record(int64_t value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    counts_[static_cast<size_t>(bucket - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  HistogramSnapshot Snapshot() const {
    HistogramSnapshot snapshot;
    snapshot.bounds.assign(bounds_.begin(), bounds_.end());
    for (size_t i = 0; i <= bounds_.size(); ++i) {
      snapshot.counts.push_back(counts_[i].load(std::memory_order_relaxed));
    }
    snapshot.sum = sum_.load(std::memory_order_relaxed);
    return snapshot;
  }

 private:
  const std::span<const int64_t> bounds_;
  std::array<std::atomic<int64_t>, kMostBounds + 1> counts_{};
  std::atomic<int64_t> sum_{0};
};

}  // namespace convtune
