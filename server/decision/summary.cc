#include "server/decision/summary.h"

#include <algorithm>
#include <utility>

#include "proto/model/tuning/candidate.h"
#include "server/decision/intervals.h"
#include "server/decision/race.h"

namespace convtune::decision {
namespace {

// The chance on either side of an interval: 99% lie inside.
constexpr double kTail = 0.005;

TimeEstimate SummarizeAlone(const Series& series) {
  Candidate candidate;
  std::vector<double> clocks;
  for (const RunSample& run : series) {
    candidate.samples_ns.push_back(SampleNs(run.time_us));
    if (run.valid() && run.sm_clock_mhz > 0) clocks.push_back(run.sm_clock_mhz);
  }
  SummarizeSamples(&candidate);
  return {candidate.median_us, candidate.q1_us,        candidate.q3_us,          candidate.low_us,
          candidate.high_us,   candidate.sample_count, Median(std::move(clocks))};
}

}  // namespace

std::vector<TimeEstimate> Summarize(const std::vector<Series>& series) {
  std::vector<TimeEstimate> estimates;
  std::vector<size_t> numbers;
  for (size_t number = 0; number < series.size(); ++number) {
    estimates.push_back(SummarizeAlone(series[number]));
    if (estimates.back().sample_count > 0) numbers.push_back(number);
  }
  if (numbers.empty()) return estimates;
  const size_t leader = Leader(series, numbers);
  const double unit = estimates[leader].median_us;
  for (const size_t number : numbers) {
    const RatioEstimate ratio = EstimateRatio(series[number], series[leader], kTail);
    if (ratio.rounds == 0) continue;
    TimeEstimate& estimate = estimates[number];
    estimate.median_us = unit * std::max(ratio.median, 1.0);
    estimate.low_us = unit * ratio.interval.low;
    estimate.high_us = std::max(unit * ratio.interval.high, estimate.median_us);
  }
  return estimates;
}

}  // namespace convtune::decision
