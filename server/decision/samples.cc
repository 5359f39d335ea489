#include "server/decision/samples.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace convtune::decision {
namespace {

// Boost clocks move by a few percent from one kernel to the next; what is
// beyond it slows a kernel by more than the differences that matter.
constexpr double kLowestShare = 0.96;

constexpr int kPasses = 3;

// The value that three quarters are at most; 1 of nothing.
double UpperQuartile(std::vector<double>* values) {
  if (values->empty()) return 1;
  const auto at = values->begin() + static_cast<std::ptrdiff_t>((3 * values->size() + 3) / 4 - 1);
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

bool HasClock(const Series& runs, size_t round) {
  return round < runs.size() && runs[round].valid() && runs[round].sm_clock_mhz > 0;
}

}  // namespace

bool CountsBlocked(const Series& runs) {
  int blocked = 0;
  int unblocked = 0;
  for (const RunSample& run : runs) {
    if (run.valid()) ++(run.blocked ? blocked : unblocked);
  }
  return blocked >= unblocked;
}

bool CountsBlocked(const std::vector<Series>& series) {
  int blocked = 0;
  int unblocked = 0;
  for (const Series& runs : series) {
    const bool any =
        std::any_of(runs.begin(), runs.end(), [](const RunSample& run) { return run.valid(); });
    if (any) ++(CountsBlocked(runs) ? blocked : unblocked);
  }
  return blocked >= unblocked;
}

void DiscardOtherKind(std::vector<Series>* series) {
  const bool blocked = CountsBlocked(*series);
  for (Series& runs : *series) {
    for (RunSample& run : runs) {
      if (run.blocked != blocked) run.time_us = 0;
    }
  }
}

int DiscardSlowClocks(std::vector<Series>* series) {
  size_t rounds = 0;
  for (const Series& runs : *series) rounds = std::max(rounds, runs.size());
  std::vector<double> of_round(rounds, 1);
  std::vector<double> of_candidate(series->size(), 1);
  std::vector<double> clocks;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = 0; i < series->size(); ++i) {
      clocks.clear();
      for (size_t round = 0; round < rounds; ++round) {
        if (!HasClock((*series)[i], round)) continue;
        clocks.push_back((*series)[i][round].sm_clock_mhz / of_round[round]);
      }
      of_candidate[i] = UpperQuartile(&clocks);
    }
    for (size_t round = 0; round < rounds; ++round) {
      clocks.clear();
      for (size_t i = 0; i < series->size(); ++i) {
        if (!HasClock((*series)[i], round)) continue;
        clocks.push_back((*series)[i][round].sm_clock_mhz / of_candidate[i]);
      }
      of_round[round] = UpperQuartile(&clocks);
    }
  }
  int discarded = 0;
  for (size_t i = 0; i < series->size(); ++i) {
    Series& runs = (*series)[i];
    for (size_t round = 0; round < runs.size(); ++round) {
      if (HasClock(runs, round) &&
          runs[round].sm_clock_mhz < kLowestShare * of_candidate[i] * of_round[round]) {
        runs[round].time_us = 0;
        ++discarded;
      }
    }
  }
  return discarded;
}

std::vector<double> RoundRatios(const Series& a, const Series& b, bool in_cycles) {
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(a.size(), b.size()); ++round) {
    const RunSample& of_a = a[round];
    const RunSample& of_b = b[round];
    if (!of_a.valid() || !of_b.valid() || of_a.blocked != of_b.blocked) continue;
    const bool clocks = in_cycles && of_a.blocked && of_a.sm_clock_mhz > 0 && of_b.sm_clock_mhz > 0;
    ratios.push_back(clocks
                         ? (of_a.time_us * of_a.sm_clock_mhz) / (of_b.time_us * of_b.sm_clock_mhz)
                         : of_a.time_us / of_b.time_us);
  }
  return ratios;
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
