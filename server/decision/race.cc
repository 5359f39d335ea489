#include "server/decision/race.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "server/decision/contests.h"
#include "server/decision/intervals.h"
#include "server/decision/race_look.h"

namespace convtune::decision {
namespace {

using Numbers = std::vector<size_t>;

int ValidRounds(const Series& series) {
  return static_cast<int>(std::count_if(series.begin(), series.end(),
                                        [](const RunSample& run) { return run.valid(); }));
}

double MedianTime(const Series& series) {
  std::vector<double> times;
  for (const RunSample& run : series) {
    if (run.valid()) times.push_back(run.time_us);
  }
  return Median(std::move(times));
}

Numbers MembersOf(const std::vector<Contender>& contenders, const std::vector<Series>& series,
                  const Numbers& runners, int contest) {
  Numbers members;
  for (const size_t number : runners) {
    if ((contenders[number].contests >> contest & 1U) != 0 && ValidRounds(series[number]) > 0) {
      members.push_back(number);
    }
  }
  return members;
}

// Who stays: leaders that are followed, those who follow them, and, as long as
// somebody else does, the stock choice and the fastest of all: everybody is
// compared with these two in the end.
Numbers Stay(const std::vector<Contender>& contenders, const Numbers& runners, size_t fastest,
             const std::set<size_t>& racing) {
  Numbers stay;
  if (racing.empty()) return stay;
  for (const size_t number : runners) {
    if (racing.contains(number) || contenders[number].stock || number == fastest) {
      stay.push_back(number);
    }
  }
  return stay;
}

}  // namespace

size_t Leader(const std::vector<Series>& series, const std::vector<size_t>& numbers) {
  // Whoever ran most, and of these the fastest, is who the others are compared
  // with.
  size_t yardstick = numbers[0];
  int most = -1;
  double least = 0;
  for (const size_t number : numbers) {
    const int valid = ValidRounds(series[number]);
    if (valid < most) continue;
    const double median = MedianTime(series[number]);
    if (valid > most || median < least) {
      yardstick = number;
      most = valid;
      least = median;
    }
  }
  size_t leader = yardstick;
  double lowest = 1;
  for (const size_t number : numbers) {
    // One that left early was behind then, whatever its few rounds say.
    if (2 * ValidRounds(series[number]) < most) continue;
    const std::vector<double> ratios = RoundRatios(series[number], series[yardstick]);
    if (ratios.empty()) continue;
    const double median = Median(ratios);
    if (median < lowest) {
      leader = number;
      lowest = median;
    }
  }
  return leader;
}

RaceStep NextStep(const RacePolicy& policy, const std::vector<Contender>& contenders,
                  const std::vector<Series>& series, const std::vector<size_t>& runners,
                  int rounds) {
  if (rounds < policy.screen_rounds) return {runners, policy.screen_rounds - rounds, true};
  RaceLook look(policy, series, rounds);
  const bool screening = rounds < policy.first_look;
  std::set<size_t> racing;
  size_t fastest = 0;
  bool hopeless = rounds >= policy.noise_rounds;
  for (int contest = 0; contest < kContests; ++contest) {
    const Numbers members = MembersOf(contenders, series, runners, contest);
    if (members.empty()) continue;
    const size_t leader = Leader(series, members);
    if (contest == static_cast<int>(Contest::kAny)) fastest = leader;
    bool followed = screening;
    for (const size_t number : members) {
      if (number == leader) continue;
      if (look.BehindBy(number, leader) > 0) continue;
      if (!screening && look.KnownAsFast(number, leader)) continue;
      followed = true;
      racing.insert(number);
      hopeless = hopeless && look.Hopeless(number, leader);
    }
    if (followed) racing.insert(leader);
  }
  RaceStep step{Stay(contenders, runners, fastest, racing)};
  if (step.runners.empty()) {
    const auto timed = std::count_if(series.begin(), series.end(),
                                     [](const Series& runs) { return ValidRounds(runs) > 0; });
    step.stop = timed == 1 ? StopReason::kOneCandidate : StopReason::kSettled;
  } else if (screening) {
    step.rounds = policy.first_look - rounds;
  } else if (hopeless) {
    step.stop = StopReason::kNoiseSettled;
  } else if (rounds >= policy.max_rounds) {
    step.stop = StopReason::kRounds;
  } else {
    const int next = static_cast<int>(std::ceil(rounds * policy.growth));
    step.rounds = std::min(next, policy.max_rounds) - rounds;
  }
  if (step.stop != StopReason::kNone) step.runners.clear();
  return step;
}

Race::Race(const RacePolicy& policy, std::vector<Contender> contenders)
    : policy_(policy), contenders_(std::move(contenders)), series_(contenders_.size()) {
  for (size_t number = 0; number < contenders_.size(); ++number) runners_.push_back(number);
}

void Race::Add(size_t number, int round, const RunSample& run) {
  Series& series = series_[number];
  if (static_cast<int>(series.size()) <= round) series.resize(static_cast<size_t>(round) + 1);
  series[static_cast<size_t>(round)] = run;
}

void Race::Leave(size_t number) {
  series_[number].clear();
  std::erase(runners_, number);
}

std::vector<size_t> Race::LeaveOtherKind() {
  const bool blocked = CountsBlocked(series_);
  std::vector<size_t> leaving;
  for (size_t number = 0; number < series_.size(); ++number) {
    if (ValidRounds(series_[number]) > 0 && CountsBlocked(series_[number]) != blocked) {
      leaving.push_back(number);
    }
  }
  for (const size_t number : leaving) Leave(number);
  return leaving;
}

RaceStep Race::Next() {
  rounds_ += step_rounds_;
  if (runners_.empty()) return {{}, 0, false, StopReason::kSettled};
  const std::vector<Series> samples = Samples();
  RaceStep step = NextStep(policy_, contenders_, samples, runners_, rounds_);
  if (rounds_ >= policy_.screen_rounds) NoteWhoIsBehind(samples);
  if (step.stop == StopReason::kNone) runners_ = step.runners;
  step_rounds_ = step.rounds;
  return step;
}

void Race::NoteWhoIsBehind(const std::vector<Series>& samples) {
  RaceLook look(policy_, samples, rounds_);
  const size_t leader = Leader(samples, runners_);
  for (const size_t number : runners_) {
    const double by = look.BehindBy(number, leader);
    if (by <= 0) continue;
    Behind& behind = behind_[number];
    if (by > behind.low) behind = {leader, by};
  }
}

std::vector<TimeEstimate> Race::Estimates() const {
  std::vector<TimeEstimate> estimates = Summarize(Samples());
  for (const auto& [number, behind] : behind_) {
    const double least = behind.low * estimates[behind.leader].median_us;
    TimeEstimate& estimate = estimates[number];
    estimate.low_us = std::max(estimate.low_us, least);
    estimate.median_us = std::max(estimate.median_us, least);
    estimate.high_us = std::max(estimate.high_us, least);
  }
  return estimates;
}

std::vector<Series> Race::Samples() const {
  std::vector<Series> samples = series_;
  DiscardOtherKind(&samples);
  DiscardSlowClocks(&samples);
  return samples;
}

}  // namespace convtune::decision
