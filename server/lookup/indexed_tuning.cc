#include "server/lookup/indexed_tuning.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "proto/base/mutex.h"
#include "proto/model/tuning/note_rules.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::lookup {
namespace {

// Whatever constraints `a` satisfies, `b` does too, and it keeps the numerics of every stock
// choice whose numerics `a` keeps.
bool AtLeastAsEligible(const Candidate& b, const Candidate& a) {
  if (a.error && !(b.error && *b.error <= *a.error)) return false;
  return ApiOf(b.id) == ApiOf(a.id) && b.workspace_bytes <= a.workspace_bytes &&
         KeepsNumerics(b.numerical_notes, a.numerical_notes) && a.capturable() <= b.capturable();
}

// True if `a` can never be the answer, nor change which one it is, while `b` is there: b keeps to
// every constraint that a keeps to, and is ordered before it. Both are usable().
bool Dominates(const Candidate& b, const Candidate& a) {
  if (!AtLeastAsEligible(b, a)) return false;
  if (b.timed() != a.timed()) return b.timed();
  if (!b.timed()) return HeuristicBefore(b, a);
  // It may be the fastest in another cache state, or when replayed.
  if (!a.other_times.empty()) return false;
  // Ties go by both ends of the interval, and by the shortest host time that is
  // known; see PickWinner.
  if ((b.host_us > 0) != (a.host_us > 0) || b.host_us > a.host_us) return false;
  return b.low_us <= a.low_us && b.median_us <= a.median_us && b.high_us <= a.high_us &&
         TieBefore(b, a);
}

// True if every candidate that the heuristics list before the stock choice was
// refused: one that was only skipped might be the stock choice itself.
bool IsCertain(const std::vector<Candidate>& candidates, size_t index) {
  const Candidate& stock = candidates[index];
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
    return b.usable() && IsListedBefore(b, c) && AtLeastAsEligible(b, c);
  });
}

void AddPruned(const Candidate& candidate, bool banned, std::vector<PrunedGroup>* pruned) {
  PrunedGroup added;
  added.workspace_bytes = candidate.workspace_bytes;
  added.error = candidate.error.value_or(PrunedGroup::kNotCompared);
  added.numerical_notes = candidate.numerical_notes;
  added.legacy = ApiOf(candidate.id) == Api::kLegacy ? 1 : 0;
  added.capturable = candidate.capturable() ? 1 : 0;
  added.banned = banned ? 1 : 0;
  for (PrunedGroup& group : *pruned) {
    added.count = group.count;
    if (group == added) {
      ++group.count;
      return;
    }
  }
  added.count = 1;
  pruned->push_back(added);
}

// The one copy of an environment's texts, which stays: there are few.
const KeptEnvironment* SharedEnvironment(const std::string& text) {
  static auto* const mutex = new Mutex;
  static auto* const kept = new std::map<std::string, KeptEnvironment>;
  MutexLock lock(*mutex);
  const auto [shared, is_new] = kept->try_emplace(text);
  if (is_new) {
    const auto environment = Environment::Parse(text);
    shared->second = {text, environment.ok() ? environment->Name() : ""};
  }
  return &shared->second;
}

// The bans of a tuning's candidates, asked for once.
class BansOfTuning {
 public:
  BansOfTuning(const Tuning& tuning, const Bans& bans) : tuning_(tuning) {
    if (bans.empty()) return;
    for (const Candidate& c : tuning.candidates) {
      by_index_.push_back(bans.Find(c.id));
      any_ = any_ || (c.usable() && by_index_.back() != nullptr);
    }
  }

  // Whether a candidate that ran is banned.
  bool any() const { return any_; }
  // Of a candidate of the tuning.
  Bans::Shared Of(const Candidate& c) const {
    return any_ ? by_index_[static_cast<size_t>(&c - tuning_.candidates.data())] : nullptr;
  }

 private:
  const Tuning& tuning_;
  std::vector<Bans::Shared> by_index_;
  bool any_ = false;
};

// All that does not depend on which candidates are kept.
IndexedTuning WithoutCandidates(const Tuning& tuning) {
  IndexedTuning indexed(tuning);
  indexed.candidate_count = static_cast<int>(tuning.candidates.size());
  indexed.digest = tuning.key.Digest();
  const auto stock = StockIndex(tuning.candidates);
  indexed.stock_is_certain = stock && IsCertain(tuning.candidates, *stock);
  for (const Candidate& c : tuning.candidates) {
    if (c.usable()) {
      (ApiOf(c.id) == Api::kGraph ? indexed.has_graph : indexed.has_legacy) = true;
    } else if (c.status == CandidateStatus::kSkippedMemory) {
      indexed.least_skipped_workspace =
          std::min(indexed.least_skipped_workspace.value_or(c.workspace_bytes), c.workspace_bytes);
    }
  }
  return indexed;
}

void Take(const Tuning& tuning, const std::vector<const Candidate*>& kept, const BansOfTuning& bans,
          IndexedTuning* indexed) {
  const Candidate* const winner =
      PickAllowed(tuning, [&](const Candidate& c) { return bans.Of(c) == nullptr; });
  std::vector<Candidate>& candidates = indexed->tuning.candidates;
  candidates.reserve(kept.size());
  for (const Candidate* c : kept) {
    if (c == winner) indexed->winner = static_cast<int>(candidates.size());
    candidates.push_back(*c);
    // Assigning {} or clear() would keep the memory.
    candidates.back().samples_ns = std::vector<int64_t>();
  }
  indexed->stock = StockIndex(candidates);
  if (!bans.any()) return;
  IndexedBans banned;
  for (const Candidate* c : kept) banned.by_index.push_back(bans.Of(*c));
  const Candidate* const unbanned_winner =
      PickAllowed(tuning, [](const Candidate&) { return true; });
  if (unbanned_winner != nullptr) banned.of_winner = bans.Of(*unbanned_winner);
  for (const Candidate& c : tuning.candidates) {
    if (!c.usable() && bans.Of(c) == nullptr) ++banned.unusable[c.status];
  }
  indexed->bans = std::make_shared<const IndexedBans>(std::move(banned));
}

}  // namespace

Candidate PrunedGroup::Example() const {
  Candidate candidate;
  if (legacy != 0) candidate.id = LegacyAlgorithm{};
  candidate.numerical_notes = numerical_notes;
  candidate.workspace_bytes = workspace_bytes;
  candidate.capture = capturable != 0 ? CaptureSupport::kYes : CaptureSupport::kNo;
  if (error != kNotCompared) candidate.error = error;
  return candidate;
}

bool DominatorsFirst(const Candidate& a, const Candidate& b) {
  if (a.timed() != b.timed()) return a.timed();
  if (!a.timed()) return HeuristicBefore(a, b);
  const auto a_time = std::tie(a.median_us, a.high_us);
  const auto b_time = std::tie(b.median_us, b.high_us);
  return a_time != b_time ? a_time < b_time : TieBefore(a, b);
}

KeptKey::KeptKey(const TuningKey& key)
    : problem_text(key.problem_text), environment(SharedEnvironment(key.environment_text)) {}

Tuning KeptTuning::ToTuning() const {
  Tuning tuning;
  static_cast<TuningFacts&>(tuning) = *this;
  tuning.key = key.Whole();
  tuning.candidates = candidates;
  return tuning;
}

std::string IndexedTuning::Winner() const {
  return winner < 0 ? "" : ToText(tuning.candidates[static_cast<size_t>(winner)].id);
}

IndexedTuning KeepAll(const Tuning& tuning, const Bans& bans) {
  IndexedTuning indexed = WithoutCandidates(tuning);
  std::vector<const Candidate*> all;
  for (const Candidate& c : tuning.candidates) all.push_back(&c);
  Take(tuning, all, BansOfTuning(tuning, bans), &indexed);
  return indexed;
}

IndexedTuning KeepBest(const Tuning& tuning, const CandidateId* pinned, const Bans& bans) {
  IndexedTuning indexed = WithoutCandidates(tuning);
  const BansOfTuning banned(tuning, bans);
  std::vector<const Candidate*> all;
  for (const Candidate& c : tuning.candidates) {
    if (c.usable()) all.push_back(&c);
  }
  // The stock choices of callers of both APIs and of the legacy one alone.
  const auto stock = StockIndex(tuning.candidates);
  const auto is_stock = [&](const Candidate& c) {
    return (stock && &c == &tuning.candidates[*stock]) || IsLegacyStock(c, tuning.candidates);
  };
  std::sort(all.begin(), all.end(),
            [](const Candidate* a, const Candidate* b) { return DominatorsFirst(*a, *b); });
  std::vector<const Candidate*> kept;
  std::vector<const Candidate*> besides;
  size_t rank = 0;  // among those that are not banned
  for (const Candidate* c : all) {
    const Bans::Shared ban = banned.Of(*c);
    const bool is_banned = ban != nullptr;
    // Of each ban the best stay, too: where all is banned, the miss names every ban.
    const bool dominated = std::any_of(kept.begin(), kept.end(), [&](const Candidate* k) {
      const Bans::Shared other = banned.Of(*k);
      return (other == nullptr || other == ban) && Dominates(*k, *c);
    });
    const bool is_first = !is_banned && rank++ <= kRunnersUp;
    if (!dominated) {
      kept.push_back(c);
    } else if (is_first || is_stock(*c) || (pinned != nullptr && c->id == *pinned)) {
      besides.push_back(c);
    } else {
      AddPruned(*c, is_banned, &indexed.pruned);
    }
  }
  kept.insert(kept.end(), besides.begin(), besides.end());
  Take(tuning, kept, banned, &indexed);
  indexed.pruned.shrink_to_fit();
  return indexed;
}

}  // namespace convtune::lookup
