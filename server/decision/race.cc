#include "server/decision/race.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "proto/model/tuning/median.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::decision {
namespace {

// The chance on either side of an interval of times: 99% lie inside.
constexpr double kTail = 0.005;
constexpr int kScreenRounds = 3;
// A candidate leaves after the screening if it is slower than the leader by this factor in
// each of its rounds.
constexpr double kScreenFactor = 1.1;
// Rounds when the race is looked at first, the screening's included; below
// twelve nobody can be known to be slower at kLookTail.
constexpr int kFirstLook = 12;
// The factor from the rounds of one look to those of the next.
constexpr double kGrowth = 1.5;
// Each time the race compares two candidates, it errs in either direction with at most this chance:
// it takes one for slower that is not, or one for as fast that is slower.
constexpr double kLookTail = 0.001;
// Rounds from which the noise may end the race, and clocks are believed to
// be a candidate's own.
constexpr int kNoiseRounds = 60;

void SummarizeAlone(const Series& series, Candidate* candidate) {
  std::vector<double> clocks;
  for (const RunSample& run : series) {
    candidate->samples_ns.push_back(SampleNs(run.time_us));
    if (run.valid() && run.sm_clock_mhz > 0) clocks.push_back(run.sm_clock_mhz);
  }
  SummarizeSamples(candidate);
  candidate->sm_clock_mhz = Median(std::move(clocks));
}

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

// The number of the one with the lowest time, of those that ran in half of the rounds at
// least: by the median of the ratios to the one that ran in most. REQUIRES: `numbers` is not empty.
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

// A RaceLook tells what is known of two candidates at one look at a race. What was found of a
// pair is kept for the next question.
class RaceLook {
 public:
  // `series` outlives it; `rounds` is how many have been run.
  RaceLook(const std::vector<Series>& series, int rounds) : series_(series), rounds_(rounds) {}

  // The factor, above 1, by which one is known to be slower than the leader at
  // least; 0 if it is not known to be. In a screening: what its lowest ratio
  // is, if that is beyond kScreenFactor; later the lower end of the
  // interval. As long as there are few rounds it must be so in clock cycles
  // too: by chance, one candidate may have had all the low clocks.
  double BehindBy(size_t number, size_t leader) {
    if (number == leader) return 0;
    if (rounds_ < kFirstLook) return ScreenedBy(number, leader);
    const RatioEstimate& ratio = Ratio(number, leader);
    if (!ratio.sure || ratio.interval.low <= 1) return 0;
    if (rounds_ >= kNoiseRounds) return ratio.interval.low;
    const double in_cycles =
        EstimateRatio(RoundRatios(series_[number], series_[leader], /*in_cycles=*/true), kLookTail)
            .interval.low;
    return in_cycles > 1 ? std::min(in_cycles, ratio.interval.low) : 0;
  }

  // It is not slower than the leader by more than kEquivalence.
  bool KnownAsFast(size_t number, size_t leader) {
    const RatioEstimate& ratio = Ratio(number, leader);
    return ratio.sure && ratio.interval.high <= 1 + kEquivalence;
  }

  // True if even twice the most rounds would not settle the pair, and the
  // noise that this follows from was much the same in the first half.
  bool Hopeless(size_t number, size_t leader) {
    const RatioEstimate& whole = Ratio(number, leader);
    if (!whole.sure) return false;
    const double half_width = (whole.interval.high - whole.interval.low) / 2;
    const double wanted = std::max(kEquivalence / 2, 0.8 * (whole.median - 1));
    const double needed = whole.rounds * std::pow(half_width / wanted, 2);
    if (!(needed > 2.0 * kMaxRounds)) return false;
    const auto first_half = [](const Series& runs) {
      return Series(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2));
    };
    const RatioEstimate half = EstimateRatio(
        RoundRatios(first_half(series_[number]), first_half(series_[leader])), kLookTail);
    const auto noise = [](const RatioEstimate& estimate) {
      return (estimate.interval.high - estimate.interval.low) *
             std::sqrt(static_cast<double>(estimate.rounds));
    };
    return std::abs(noise(half) - noise(whole)) <= 0.25 * noise(whole);
  }

 private:
  const RatioEstimate& Ratio(size_t number, size_t leader) {
    const auto [found, made] = ratios_.try_emplace({number, leader});
    if (made) {
      found->second = EstimateRatio(RoundRatios(series_[number], series_[leader]), kLookTail);
    }
    return found->second;
  }

  double ScreenedBy(size_t number, size_t leader) const {
    double lowest = 0;
    for (const bool in_cycles : {false, true}) {
      const std::vector<double> ratios = RoundRatios(series_[number], series_[leader], in_cycles);
      if (static_cast<int>(ratios.size()) < kScreenRounds) return 0;
      const double least = *std::min_element(ratios.begin(), ratios.end());
      if (least <= kScreenFactor) return 0;
      lowest = lowest == 0 ? least : std::min(lowest, least);
    }
    return lowest;
  }

  const std::vector<Series>& series_;
  const int rounds_;
  std::map<std::pair<size_t, size_t>, RatioEstimate> ratios_;
};

}  // namespace

void Summarize(const std::vector<Series>& series, const std::vector<Candidate*>& candidates) {
  std::vector<size_t> numbers;
  for (size_t number = 0; number < series.size(); ++number) {
    if (ValidRounds(series[number]) == 0) continue;
    SummarizeAlone(series[number], candidates[number]);
    numbers.push_back(number);
  }
  if (numbers.empty()) return;
  const size_t leader = Leader(series, numbers);
  const double unit = candidates[leader]->median_us;
  for (const size_t number : numbers) {
    const RatioEstimate ratio = EstimateRatio(RoundRatios(series[number], series[leader]), kTail);
    if (ratio.rounds == 0) continue;
    Candidate& candidate = *candidates[number];
    candidate.median_us = unit * std::max(ratio.median, 1.0);
    candidate.low_us = unit * ratio.interval.low;
    candidate.high_us = std::max(unit * ratio.interval.high, candidate.median_us);
  }
}

uint32_t ContestsOf(const Candidate& candidate, const Candidate* stock) {
  uint32_t contests = ContestBit(Contest::kAny);
  if (candidate.workspace_bytes == 0) contests |= ContestBit(Contest::kNoWorkspace);
  if (candidate.deterministic()) contests |= ContestBit(Contest::kDeterministic);
  if (stock != nullptr && KeepsNumerics(candidate.numerical_notes, stock->numerical_notes)) {
    contests |= ContestBit(Contest::kStockNumerics);
  }
  if (candidate.capturable()) contests |= ContestBit(Contest::kCapturable);
  contests |=
      ContestBit(ApiOf(candidate.id) == Api::kGraph ? Contest::kGraphApi : Contest::kLegacyApi);
  return contests;
}

Race::Race(std::vector<Contender> contenders)
    : contenders_(std::move(contenders)), series_(contenders_.size()) {
  for (size_t number = 0; number < contenders_.size(); ++number) runners_.push_back(number);
}

void Race::Add(size_t number, int round, const RunSample& run) {
  Series& series = series_[number];
  if (static_cast<int>(series.size()) <= round) series.resize(static_cast<size_t>(round) + 1);
  series[static_cast<size_t>(round)] = run;
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

RaceStep Race::NextStep(const std::vector<Series>& samples) const {
  if (rounds_ < kScreenRounds) return {runners_, kScreenRounds - rounds_, true};
  RaceLook look(samples, rounds_);
  const bool screening = rounds_ < kFirstLook;
  std::set<size_t> racing;
  size_t fastest = 0;
  bool hopeless = rounds_ >= kNoiseRounds;
  for (int contest = 0; contest < kContests; ++contest) {
    std::vector<size_t> members = runners_;
    std::erase_if(members, [&](size_t number) {
      return (contenders_[number].contests >> contest & 1U) == 0 ||
             ValidRounds(samples[number]) == 0;
    });
    if (members.empty()) continue;
    const size_t leader = Leader(samples, members);
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
  RaceStep step;
  if (!racing.empty()) {
    // Leaders that are followed stay, those who follow them, the stock choice and the fastest of
    // all: everybody is compared with these two in the end.
    step.runners = runners_;
    std::erase_if(step.runners, [&](size_t number) {
      return !racing.contains(number) && !contenders_[number].stock && number != fastest;
    });
  }
  if (step.runners.empty()) {
    const auto timed = std::count_if(samples.begin(), samples.end(),
                                     [](const Series& runs) { return ValidRounds(runs) > 0; });
    step.stop = timed == 1 ? StopReason::kOneCandidate : StopReason::kSettled;
  } else if (screening) {
    step.rounds = kFirstLook - rounds_;
  } else if (hopeless) {
    step.stop = StopReason::kNoiseSettled;
  } else if (rounds_ >= kMaxRounds) {
    step.stop = StopReason::kRounds;
  } else {
    const int next = static_cast<int>(std::ceil(rounds_ * kGrowth));
    step.rounds = std::min(next, kMaxRounds) - rounds_;
  }
  if (step.stop != StopReason::kNone) step.runners.clear();
  return step;
}

RaceStep Race::Next() {
  rounds_ += step_rounds_;
  if (runners_.empty()) return {{}, 0, false, StopReason::kSettled};
  const std::vector<Series> samples = Samples();
  RaceStep step = NextStep(samples);
  if (rounds_ >= kScreenRounds) NoteWhoIsBehind(samples);
  if (step.stop == StopReason::kNone) runners_ = step.runners;
  step_rounds_ = step.rounds;
  return step;
}

void Race::NoteWhoIsBehind(const std::vector<Series>& samples) {
  RaceLook look(samples, rounds_);
  const size_t leader = Leader(samples, runners_);
  for (const size_t number : runners_) {
    const double by = look.BehindBy(number, leader);
    if (by <= 0) continue;
    Behind& behind = behind_[number];
    if (by > behind.low) behind = {leader, by};
  }
}

void Race::WriteTimes(const std::vector<Candidate*>& candidates) const {
  Summarize(Samples(), candidates);
  for (const auto& [number, behind] : behind_) {
    Candidate& candidate = *candidates[number];
    if (candidate.sample_count == 0) continue;
    const double least = behind.low * candidates[behind.leader]->median_us;
    candidate.low_us = std::max(candidate.low_us, least);
    candidate.median_us = std::max(candidate.median_us, least);
    candidate.high_us = std::max(candidate.high_us, least);
  }
}

}  // namespace convtune::decision
