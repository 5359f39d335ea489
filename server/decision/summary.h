// A TimeEstimate is what a race says of one candidate.
#pragma once

#include <vector>

#include "server/decision/samples.h"

namespace convtune::decision {

// Times of one candidate. The median is that of the fastest times the median
// of the ratios to it, round by round; low and high, likewise, are the ends of
// its 99% interval (see MedianInterval; both are the median for the fastest
// itself). So what slowed all candidates of a round is in none of them, and
// candidates that ran in different rounds can be compared. The fastest is the
// one that Leader() finds, and no median is below its: what left a race early
// has too few rounds to be known to be faster. Quartiles are of the samples as
// they are. All 0 for a candidate without a valid sample.
struct TimeEstimate {
  double median_us = 0;
  double q1_us = 0;
  double q3_us = 0;
  double low_us = 0;
  double high_us = 0;
  int sample_count = 0;
  double sm_clock_mhz = 0;  // median
};

// One for each series. Pure.
std::vector<TimeEstimate> Summarize(const std::vector<Series>& series);

}  // namespace convtune::decision
