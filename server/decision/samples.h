// RunSamples and Series are the input of all decisions. Plain values: every function
// of this folder is pure and can be called from any thread.
#pragma once

#include <vector>

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

// Runs of the candidates are of one kind if all were blocked, or none. True if the
// kind that counts is that of blocked runs: a candidate's kind is that of more of
// its valid runs, theirs is that of more of those who have any. Blocked is taken
// where there are as many of both.
bool CountsBlocked(const Series& runs);
bool CountsBlocked(const std::vector<Series>& series);

// Discards (sets to 0) every run that is not of the kind that counts.
void DiscardOtherKind(std::vector<Series>* series);

// Discards (sets to 0) each run whose SM clock is far below its round's, as on
// a GPU that throttles for a moment. What is expected of a run is a clock of
// its round times one of its candidate, since a power-capped GPU never reaches
// its peak, and a candidate that draws much power lowers its own clock. The two
// are found by turns, as in a median polish (Tukey, Exploratory Data Analysis,
// 1977), with upper quartiles in place of medians. Returns how many were
// discarded.
int DiscardSlowClocks(std::vector<Series>* series);

}  // namespace convtune::decision
