#include "server/decision/race_look.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace convtune::decision {

RaceLook::RaceLook(const RacePolicy& policy, const std::vector<Series>& series, int rounds)
    : policy_(policy), series_(series), rounds_(rounds) {}

const RatioEstimate& RaceLook::Ratio(size_t number, size_t leader) {
  const auto [found, made] = ratios_.try_emplace({number, leader});
  if (made) found->second = EstimateRatio(series_[number], series_[leader], policy_.tail);
  return found->second;
}

double RaceLook::ScreenedBy(size_t number, size_t leader) const {
  double lowest = 0;
  for (const auto ratios_in : {RoundRatios, RoundRatiosInCycles}) {
    const std::vector<double> ratios = ratios_in(series_[number], series_[leader]);
    if (static_cast<int>(ratios.size()) < policy_.screen_rounds) return 0;
    const double least = *std::min_element(ratios.begin(), ratios.end());
    if (least <= policy_.screen_factor) return 0;
    lowest = lowest == 0 ? least : std::min(lowest, least);
  }
  return lowest;
}

double RaceLook::BehindBy(size_t number, size_t leader) {
  if (number == leader) return 0;
  if (rounds_ < policy_.first_look) return ScreenedBy(number, leader);
  const RatioEstimate& ratio = Ratio(number, leader);
  if (!ratio.sure || ratio.interval.low <= 1) return 0;
  if (rounds_ >= policy_.noise_rounds) return ratio.interval.low;
  const double in_cycles =
      EstimateRatio(RoundRatiosInCycles(series_[number], series_[leader]), policy_.tail)
          .interval.low;
  return in_cycles > 1 ? std::min(in_cycles, ratio.interval.low) : 0;
}

bool RaceLook::KnownAsFast(size_t number, size_t leader) {
  const RatioEstimate& ratio = Ratio(number, leader);
  return ratio.sure && ratio.interval.high <= 1 + policy_.equivalence;
}

bool RaceLook::Hopeless(size_t number, size_t leader) {
  const RatioEstimate& whole = Ratio(number, leader);
  if (!whole.sure) return false;
  const double half_width = (whole.interval.high - whole.interval.low) / 2;
  const double wanted = std::max(policy_.equivalence / 2, 0.8 * (whole.median - 1));
  const double needed = whole.rounds * std::pow(half_width / wanted, 2);
  if (!(needed > 2.0 * policy_.max_rounds)) return false;
  const auto first_half = [](const Series& runs) {
    return Series(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2));
  };
  const RatioEstimate half =
      EstimateRatio(first_half(series_[number]), first_half(series_[leader]), policy_.tail);
  const auto noise = [](const RatioEstimate& estimate) {
    return (estimate.interval.high - estimate.interval.low) *
           std::sqrt(static_cast<double>(estimate.rounds));
  };
  return std::abs(noise(half) - noise(whole)) <= 0.25 * noise(whole);
}

}  // namespace convtune::decision
