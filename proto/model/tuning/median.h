// Median, and MedianInterval, which says how sure a median is. Pure functions; no value is NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace convtune {

struct Interval {
  double low = 0;
  double high = 0;
};

// The mean of the two in the middle for an even number of values; 0 of nothing.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

// The interval of order statistics that holds the median of what the values
// were drawn from, with a chance of at most `tail` that it lies below, and the
// same above: Hahn and Meeker, Statistical Intervals (1991), section 5.2. It
// assumes nothing of the distribution, so that spikes do not widen it. nullopt
// if there are too few values: 0.5^n must be at most `tail`. REQUIRES: 0 < tail
// < 0.5.
inline std::optional<Interval> MedianInterval(std::vector<double> values, double tail) {
  const size_t n = values.size();
  // `rank` becomes the highest rank, counted from 1, such that no more than `tail` of all samples
  // of size n have their value of that rank above the median. It stays 0 where no rank is so. The
  // loop adds up the terms of the binomial distribution with p = 1/2.
  double log_term = -static_cast<double>(n) * std::log(2.0);
  double cumulative = 0;
  size_t rank = 0;
  while (rank < n) {
    cumulative += std::exp(log_term);
    if (cumulative > tail) break;
    ++rank;
    log_term += std::log(static_cast<double>(n - rank + 1) / static_cast<double>(rank));
  }
  if (rank == 0) return std::nullopt;
  const auto nth = [&values](size_t place) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  const double low = nth(rank - 1);
  return Interval{low, nth(n - rank)};
}

}  // namespace convtune
