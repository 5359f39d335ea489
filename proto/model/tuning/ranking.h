// The order of candidates, and the winner of a tuning. Pure functions.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "absl/time/time.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune {

namespace v1 {
class CreateBanResponse;
}

// Order of two candidates that are equally fast and cost the host the same to launch: smaller
// workspace, then deterministic, then the text form. Strict and total for distinct ids.
bool TieBefore(const Candidate& a, const Candidate& b);

// Order of two candidates that were finalised and not timed: IsListedBefore, then the text
// form. Strict and total for distinct ids.
bool HeuristicBefore(const Candidate& a, const Candidate& b);

// Returns the candidate of `eligible` that an answer names first; nullptr if `eligible` is empty.
// REQUIRES: all are usable(). A timed candidate comes before a finalised one. Candidates whose
// interval overlaps the interval of the lowest median are tied. Tied candidates that are clearly
// dearer to launch than the cheapest one (IsCheaperToLaunch) come behind the other tied ones. Of
// what is left, the first by TieBefore wins.
// `stock` (may be nullptr) wins, if it is among `eligible` and timed, unless its interval is wholly
// above that of the fastest; then only what is wholly below the stock choice's can win, so that
// nothing replaces it within noise.
const Candidate* PickWinner(const std::vector<const Candidate*>& eligible, const Candidate* stock);

// The same, out of those of `eligible` that are `allowed`.
template <typename Allowed>
const Candidate* PickWinnerIf(const std::vector<const Candidate*>& eligible, const Candidate* stock,
                              Allowed allowed) {
  std::vector<const Candidate*> chosen;
  std::copy_if(eligible.begin(), eligible.end(), std::back_inserter(chosen), allowed);
  return PickWinner(chosen, stock);
}

// Orders: the winner without constraints, then timed ones by median with ties
// as in PickWinner, then finalised ones by heuristic rank, then the rest.
void RankCandidates(std::vector<Candidate>* candidates);

// A candidate that is slower than another by no more than this share counts as fast as it.
inline constexpr double kEquivalence = 0.015;

// True if the tuning does not know anything to be faster than `id` beyond noise: the interval of
// `id` is not wholly above that of the fastest by more than kEquivalence, or the tuning ranks it
// first.
bool IsBestWithinNoise(const Tuning& tuning, const CandidateId& id);
// True if each of the tunings knows the other's first candidate not to be the best.
bool Disagree(const Tuning& a, const Tuning& b);

// The winner without constraints among the candidates that are usable() and `allowed`.
const Candidate* PickAllowed(const Tuning& tuning,
                             const std::function<bool(const Candidate&)>& allowed);

// Adds a tuning that lists a candidate which a ban fits: how its answer without constraints
// changes from one set of bans to another. At most `max_changes` are kept. `pin` may be nullptr;
// an expired one is ignored.
void AddBanEffect(const Tuning& tuning, const Pin* pin, const Bans& before, const Bans& after,
                  absl::Time now, int max_changes, v1::CreateBanResponse* effects);

}  // namespace convtune
