#include "server/decision/intervals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace convtune::decision {
namespace {

// Rank k, from 1, such that no more than `tail` of all samples of size n have
// their k-th smallest value above the median; 0 if there is none.
size_t LowerRank(size_t n, double tail) {
  // Terms of the binomial distribution with p = 1/2.
  double log_term = -static_cast<double>(n) * std::log(2.0);
  double cumulative = 0;
  size_t rank = 0;
  while (rank < n) {
    cumulative += std::exp(log_term);
    if (cumulative > tail) break;
    ++rank;
    log_term += std::log(static_cast<double>(n - rank + 1) / static_cast<double>(rank));
  }
  return rank;
}

double Nth(std::vector<double>* values, size_t nth) {
  const auto at = values->begin() + static_cast<std::ptrdiff_t>(nth);
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

// `ratio` of the runs of every round that can be compared.
template <typename Ratio>
std::vector<double> OfEachRound(const Series& a, const Series& b, Ratio ratio) {
  std::vector<double> ratios;
  const size_t rounds = std::min(a.size(), b.size());
  ratios.reserve(rounds);
  for (size_t round = 0; round < rounds; ++round) {
    if (!a[round].valid() || !b[round].valid() || a[round].blocked != b[round].blocked) continue;
    ratios.push_back(ratio(a[round], b[round]));
  }
  return ratios;
}

double InTime(const RunSample& a, const RunSample& b) { return a.time_us / b.time_us; }

double InCycles(const RunSample& a, const RunSample& b) {
  if (!a.blocked || !(a.sm_clock_mhz > 0) || !(b.sm_clock_mhz > 0)) return InTime(a, b);
  return (a.time_us * a.sm_clock_mhz) / (b.time_us * b.sm_clock_mhz);
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  const double upper = Nth(&values, middle);
  if (values.size() % 2 == 1) return upper;
  const double lower =
      *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle));
  return (lower + upper) / 2;
}

std::optional<Interval> MedianInterval(std::vector<double> values, double tail) {
  const size_t rank = LowerRank(values.size(), tail);
  if (rank == 0) return std::nullopt;
  const double low = Nth(&values, rank - 1);
  const double high = Nth(&values, values.size() - rank);
  return Interval{low, high};
}

std::vector<double> RoundRatios(const Series& a, const Series& b) {
  return OfEachRound(a, b, InTime);
}

std::vector<double> RoundRatiosInCycles(const Series& a, const Series& b) {
  return OfEachRound(a, b, InCycles);
}

RatioEstimate EstimateRatio(const Series& a, const Series& b, double tail) {
  return EstimateRatio(RoundRatios(a, b), tail);
}

RatioEstimate EstimateRatio(std::vector<double> ratios, double tail) {
  RatioEstimate estimate;
  estimate.rounds = static_cast<int>(ratios.size());
  if (ratios.empty()) {
    estimate.interval = {0, std::numeric_limits<double>::infinity()};
    return estimate;
  }
  estimate.median = Median(ratios);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  const Interval range = {*least, *most};
  const std::optional<Interval> interval = MedianInterval(std::move(ratios), tail);
  estimate.sure = interval.has_value();
  estimate.interval = interval.value_or(range);
  return estimate;
}

}  // namespace convtune::decision
