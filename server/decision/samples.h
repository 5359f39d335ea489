// RunSamples and Series are the input of all decisions. Plain values: every function of this folder
// is pure and can be called from any thread.
#pragma once

#include <vector>

#include "proto/model/tuning/median.h"

namespace convtune::decision {

// One run of one candidate in one round.
struct RunSample {
  double time_us = 0;       // 0: it did not run, or the sample was discarded
  double sm_clock_mhz = 0;  // 0: not known
  // It was queued behind a blocking kernel. If not, the time of launching it may
  // be in time_us, so that it compares with no run that was.
  bool blocked = true;

  bool valid() const { return time_us > 0; }
};

// A candidate's runs, by round. Rounds behind the end were not run.
using Series = std::vector<RunSample>;

// Of a candidate's valid runs either the blocked ones count or the others, whichever are more.
// True if the blocked ones do, also where there are as many of both.
bool CountsBlocked(const Series& runs);
// True unless there are more candidates of which the other runs count than candidates of which the
// blocked ones do. A candidate without a valid run is in neither number.
bool CountsBlocked(const std::vector<Series>& series);

// Discards (sets to 0) every run that does not count for most candidates.
void DiscardOtherKind(std::vector<Series>* series);

// Discards (sets to 0) each run whose SM clock is far below its round's, as on
// a GPU that throttles for a moment. What is expected of a run is a clock of
// its round times one of its candidate, since a power-capped GPU never reaches
// its peak, and a candidate that draws much power lowers its own clock. The two
// are found by turns, as in a median polish (Tukey, Exploratory Data Analysis,
// 1977), with upper quartiles in place of medians. Returns how many were
// discarded.
int DiscardSlowClocks(std::vector<Series>* series);

// a's time over b's in every round in which both are valid, and both blocked or neither. Clocks and
// temperature move all candidates of a round together, and cancel out. `in_cycles`: in clock cycles
// in those rounds in which both clocks are known and both runs were blocked, so that their times
// are the GPU's alone.
std::vector<double> RoundRatios(const Series& a, const Series& b, bool in_cycles = false);

// An estimate of the ratio of two candidates, and its interval.
struct RatioEstimate {
  int rounds = 0;  // that could be compared
  double median = 0;
  // The interval of the median; of all ratios if they are too few for one. [0, infinity] for
  // none.
  Interval interval;
  bool sure = false;  // there were enough ratios for an interval of the median
};

// Estimates from `ratios`, one of each round.
RatioEstimate EstimateRatio(std::vector<double> ratios, double tail);

}  // namespace convtune::decision
