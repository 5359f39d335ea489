// A TimeEstimate is what a race says of one candidate.
#pragma once

#include <vector>

#include "server/decision/samples.h"

namespace convtune::decision {

// The times of one candidate. median_us is m * r: m is the median of the fastest one (which
// Leader() finds), r the median, over the rounds that both ran in, of the candidate's time over the
// fastest's in that round. low_us and high_us are m times the ends of the 99% interval of r
// (MedianInterval). For the fastest itself all three are m. Why by ratios: what slows all
// candidates of a round cancels out, and candidates that ran in different rounds can be compared.
// No median is below m: what left a race early has too few rounds to be known to be faster.
// Quartiles are of the samples as they are. All are 0 for a candidate without a valid sample. The
// times are in microseconds, the clock is in MHz.
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
