#include "server/tuner/pareto.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "server/tuner/ranking.h"

namespace convtune {
namespace {

// Whatever constraints `a` satisfies, `b` does too.
bool AtLeastAsEligible(const Candidate& b, const Candidate& a) {
  if (a.error && !(b.error && *b.error <= *a.error)) return false;
  return ApiOf(b.id) == ApiOf(a.id) && b.workspace_bytes <= a.workspace_bytes &&
         b.deterministic >= a.deterministic && (b.numerical_notes & ~a.numerical_notes) == 0 &&
         a.capturable() <= b.capturable();
}

// True if every candidate that the heuristics list before the stock choice was
// refused: one that was only skipped might be the stock choice itself.
bool IsCertain(const std::vector<Candidate>& candidates, size_t place) {
  const Candidate& stock = candidates[place];
  return std::none_of(candidates.begin(), candidates.end(), [&stock](const Candidate& c) {
    return c.heuristic_rank >= 0 && c.status != CandidateStatus::kUnsupported &&
           HeuristicBefore(c, stock);
  });
}

// True if cuDNN would choose `c` for callers of the legacy API under some
// constraints: they leave out whatever it lists before.
bool IsLegacyStock(const Candidate& c, const std::vector<Candidate>& candidates) {
  if (ApiOf(c.id) != Api::kLegacy || c.heuristic_rank < 0) return false;
  return std::none_of(candidates.begin(), candidates.end(), [&c](const Candidate& b) {
    return b.ran() && b.heuristic_rank >= 0 && b.heuristic_rank < c.heuristic_rank &&
           AtLeastAsEligible(b, c);
  });
}

auto TraitsOf(const PrunedGroup& group) {
  return std::tie(group.workspace_bytes, group.error, group.numerical_notes, group.legacy,
                  group.deterministic, group.capturable);
}

void AddPruned(const Candidate& candidate, std::vector<PrunedGroup>* pruned) {
  PrunedGroup added;
  added.workspace_bytes = candidate.workspace_bytes;
  added.error = candidate.error.value_or(PrunedGroup::kNotCompared);
  added.numerical_notes = candidate.numerical_notes;
  added.count = 1;
  added.legacy = ApiOf(candidate.id) == Api::kLegacy;
  added.deterministic = candidate.deterministic;
  added.capturable = candidate.capturable();
  for (PrunedGroup& group : *pruned) {
    if (TraitsOf(group) == TraitsOf(added)) {
      ++group.count;
      return;
    }
  }
  pruned->push_back(added);
}

}  // namespace

Candidate PrunedGroup::Example() const {
  Candidate candidate;
  if (legacy) candidate.id = LegacyAlgorithm{};
  candidate.numerical_notes = numerical_notes;
  candidate.deterministic = deterministic;
  candidate.workspace_bytes = workspace_bytes;
  candidate.capture = capturable ? CaptureSupport::kYes : CaptureSupport::kNo;
  if (error != kNotCompared) candidate.error = error;
  return candidate;
}

bool Dominates(const Candidate& b, const Candidate& a) {
  if (!AtLeastAsEligible(b, a)) return false;
  if (b.timed() != a.timed()) return b.timed();
  if (!b.timed()) return HeuristicBefore(b, a);
  // It may be the fastest in another cache state, or when replayed.
  if (!a.other_times.empty()) return false;
  // Ties go by both ends of the interval; see PickWinner.
  return b.low_us <= a.low_us && b.median_us <= a.median_us && b.high_us <= a.high_us &&
         TieBefore(b, a);
}

bool DominatorsFirst(const Candidate& a, const Candidate& b) {
  if (a.timed() != b.timed()) return a.timed();
  if (!a.timed()) return HeuristicBefore(a, b);
  const auto a_time = std::tie(a.median_us, a.high_us);
  const auto b_time = std::tie(b.median_us, b.high_us);
  return a_time != b_time ? a_time < b_time : TieBefore(a, b);
}

IndexedTuning KeepAll(Tuning tuning) {
  IndexedTuning indexed;
  indexed.candidate_count = static_cast<int>(tuning.candidates.size());
  indexed.digest = tuning.key.Digest();
  if (const auto environment = Environment::Parse(tuning.key.environment_text); environment.ok()) {
    indexed.environment_name = environment->Name();
  }
  indexed.stock = StockIndex(tuning.candidates);
  indexed.stock_is_certain = indexed.stock && IsCertain(tuning.candidates, *indexed.stock);
  for (Candidate& c : tuning.candidates) {
    c.samples_us = {};
    if (c.ran()) {
      (ApiOf(c.id) == Api::kGraph ? indexed.has_graph : indexed.has_legacy) = true;
    } else if (c.status == CandidateStatus::kSkippedMemory) {
      indexed.least_skipped_workspace =
          std::min(indexed.least_skipped_workspace.value_or(c.workspace_bytes), c.workspace_bytes);
    }
  }
  std::vector<const Candidate*> ran;
  for (const Candidate& c : tuning.candidates) {
    if (c.ran()) ran.push_back(&c);
  }
  const Candidate* stock = indexed.stock ? &tuning.candidates[*indexed.stock] : nullptr;
  if (const Candidate* winner = PickWinner(ran, stock)) indexed.winner = ToText(winner->id);
  indexed.tuning = std::move(tuning);
  return indexed;
}

IndexedTuning KeepBest(Tuning tuning, const CandidateId* pinned) {
  IndexedTuning indexed = KeepAll(std::move(tuning));
  std::vector<Candidate> all = std::move(indexed.tuning.candidates);
  std::set<CandidateId> stocks;
  if (indexed.stock) stocks.insert(all[*indexed.stock].id);
  for (const Candidate& c : all) {
    if (c.ran() && IsLegacyStock(c, all)) stocks.insert(c.id);
  }
  std::erase_if(all, [](const Candidate& c) { return !c.ran(); });
  std::sort(all.begin(), all.end(), DominatorsFirst);
  std::vector<Candidate> kept;
  std::vector<Candidate> besides;
  for (size_t place = 0; place < all.size(); ++place) {
    Candidate& c = all[place];
    const bool dominated =
        std::any_of(kept.begin(), kept.end(), [&c](const Candidate& k) { return Dominates(k, c); });
    if (!dominated) {
      kept.push_back(std::move(c));
    } else if (place <= kRunnersUp || stocks.contains(c.id) ||
               (pinned != nullptr && c.id == *pinned)) {
      besides.push_back(std::move(c));
    } else {
      AddPruned(c, &indexed.pruned);
    }
  }
  kept.insert(kept.end(), besides.begin(), besides.end());
  kept.shrink_to_fit();
  indexed.pruned.shrink_to_fit();
  indexed.stock = StockIndex(kept);
  indexed.tuning.candidates = std::move(kept);
  return indexed;
}

}  // namespace convtune
