// An Interval says how sure a median is.
#pragma once

#include <optional>
#include <vector>

#include "server/decision/samples.h"

namespace convtune::decision {

struct Interval {
  double low = 0;
  double high = 0;
};

// Median (mean of the two in the middle for an even number); 0 of nothing.
double Median(std::vector<double> values);

// The interval of order statistics that holds the median of what the values
// were drawn from, with a chance of at most `tail` that it lies below, and the
// same above: Hahn and Meeker, Statistical Intervals (1991), section 5.2. It
// assumes nothing of the distribution, so that spikes do not widen it. nullopt
// if there are too few values: 0.5^n must be at most `tail`. REQUIRES: 0 < tail
// < 0.5.
std::optional<Interval> MedianInterval(std::vector<double> values, double tail);

// a's time over b's in every round in which both are valid, and both blocked or
// neither. Clocks and temperature move all candidates of a round together, and cancel out.
std::vector<double> RoundRatios(const Series& a, const Series& b);

// The same in clock cycles, in those rounds in which both clocks are known and
// both runs were blocked, so that their times are the GPU's alone; in time in the
// others.
std::vector<double> RoundRatiosInCycles(const Series& a, const Series& b);

// The interval of a's time over b's.
struct RatioEstimate {
  int rounds = 0;  // that could be compared
  double median = 0;
  // The interval of the median; of all ratios if they are too few for one. [0, infinity] for
  // none.
  Interval interval;
  bool sure = false;  // there were enough ratios for an interval of the median
};

RatioEstimate EstimateRatio(const Series& a, const Series& b, double tail);
// Estimates from `ratios`, one of each round.
RatioEstimate EstimateRatio(std::vector<double> ratios, double tail);

}  // namespace convtune::decision
