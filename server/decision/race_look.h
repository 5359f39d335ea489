// A RaceLook tells what is known of two candidates at one look at a race.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "server/decision/intervals.h"
#include "server/decision/race.h"
#include "server/decision/samples.h"

namespace convtune::decision {

// Not thread-safe: what was found of a pair is kept for the next question.
class RaceLook {
 public:
  // `policy` and `series` outlive it; `rounds` is how many have been run.
  RaceLook(const RacePolicy& policy, const std::vector<Series>& series, int rounds);

  // The factor, above 1, by which one is known to be slower than the leader at
  // least; 0 if it is not known to be. In a screening: what its lowest ratio
  // is, if that is beyond policy.screen_factor; later the lower end of the
  // interval. As long as there are few rounds it must be so in clock cycles
  // too: by chance, one candidate may have had all the low clocks.
  double BehindBy(size_t number, size_t leader);

  // It is not slower than the leader by more than policy.equivalence.
  bool KnownAsFast(size_t number, size_t leader);

  // True if even twice the most rounds would not settle the pair, and the
  // noise that this follows from was much the same in the first half.
  bool Hopeless(size_t number, size_t leader);

 private:
  const RatioEstimate& Ratio(size_t number, size_t leader);
  double ScreenedBy(size_t number, size_t leader) const;

  const RacePolicy& policy_;
  const std::vector<Series>& series_;
  const int rounds_;
  std::map<std::pair<size_t, size_t>, RatioEstimate> ratios_;
};

}  // namespace convtune::decision
