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

using Places = std::vector<size_t>;

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

Places MembersOf(const std::vector<Contender>& contenders, const std::vector<Series>& series,
                 const Places& runners, int contest) {
  Places members;
  for (const size_t place : runners) {
    if ((contenders[place].contests >> contest & 1U) != 0 && ValidRounds(series[place]) > 0) {
      members.push_back(place);
    }
  }
  return members;
}

// Who stays: leaders that are followed, those who follow them, and, as long as
// somebody else does, the stock choice and the fastest of all: everybody is
// compared with these two in the end.
Places Stay(const std::vector<Contender>& contenders, const Places& runners, size_t fastest,
            const std::set<size_t>& racing) {
  Places stay;
  if (racing.empty()) return stay;
  for (const size_t place : runners) {
    if (racing.contains(place) || contenders[place].stock || place == fastest) {
      stay.push_back(place);
    }
  }
  return stay;
}

}  // namespace

size_t Leader(const std::vector<Series>& series, const std::vector<size_t>& places) {
  // Whoever ran most, and of these the fastest, is who the others are compared
  // with.
  size_t yardstick = places[0];
  int most = -1;
  double least = 0;
  for (const size_t place : places) {
    const int valid = ValidRounds(series[place]);
    if (valid < most) continue;
    const double median = MedianTime(series[place]);
    if (valid > most || median < least) {
      yardstick = place;
      most = valid;
      least = median;
    }
  }
  size_t leader = yardstick;
  double lowest = 1;
  for (const size_t place : places) {
    // One that left early was behind then, whatever its few rounds say.
    if (2 * ValidRounds(series[place]) < most) continue;
    const std::vector<double> ratios = RoundRatios(series[place], series[yardstick]);
    if (ratios.empty()) continue;
    const double median = Median(ratios);
    if (median < lowest) {
      leader = place;
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
    const Places members = MembersOf(contenders, series, runners, contest);
    if (members.empty()) continue;
    const size_t leader = Leader(series, members);
    if (contest == static_cast<int>(Contest::kAny)) fastest = leader;
    bool followed = screening;
    for (const size_t place : members) {
      if (place == leader) continue;
      if (look.BehindBy(place, leader) > 0) continue;
      if (!screening && look.KnownAsFast(place, leader)) continue;
      followed = true;
      racing.insert(place);
      hopeless = hopeless && look.Hopeless(place, leader);
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
  for (size_t place = 0; place < contenders_.size(); ++place) runners_.push_back(place);
}

void Race::Add(size_t place, int round, const RunSample& run) {
  Series& series = series_[place];
  if (static_cast<int>(series.size()) <= round) series.resize(static_cast<size_t>(round) + 1);
  series[static_cast<size_t>(round)] = run;
}

void Race::Leave(size_t place) {
  series_[place].clear();
  std::erase(runners_, place);
}

std::vector<size_t> Race::LeaveOtherKind() {
  const bool blocked = CountsBlocked(series_);
  std::vector<size_t> leaving;
  for (size_t place = 0; place < series_.size(); ++place) {
    if (ValidRounds(series_[place]) > 0 && CountsBlocked(series_[place]) != blocked) {
      leaving.push_back(place);
    }
  }
  for (const size_t place : leaving) Leave(place);
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
  for (const size_t place : runners_) {
    const double by = look.BehindBy(place, leader);
    if (by <= 0) continue;
    Behind& behind = behind_[place];
    if (by > behind.low) behind = {leader, by};
  }
}

std::vector<TimeEstimate> Race::Estimates() const {
  std::vector<TimeEstimate> estimates = Summarize(Samples());
  for (const auto& [place, behind] : behind_) {
    const double least = behind.low * estimates[behind.leader].median_us;
    TimeEstimate& estimate = estimates[place];
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
