#include "server/lookup/answer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/model/tuning/note_rules.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/evidence.h"
#include "server/lookup/indexed_tuning.h"

namespace convtune::lookup {
namespace {

using Candidates = std::vector<const Candidate*>;

// See convtune.v1.Answer.portfolio.
std::vector<Candidate> MakePortfolio(const Candidate& winner, const Candidates& eligible,
                                     const Candidate* stock) {
  Candidates portfolio = {&winner};
  const auto add = [&portfolio](const Candidate* candidate) {
    if (candidate == nullptr) return;
    if (std::find(portfolio.begin(), portfolio.end(), candidate) != portfolio.end()) return;
    portfolio.push_back(candidate);
  };
  if (stock != nullptr) {
    add(PickWinnerIf(eligible, stock, [stock](const Candidate* c) {
      return KeepsNumerics(c->numerical_notes, stock->numerical_notes);
    }));
  }
  add(PickWinnerIf(eligible, stock, [](const Candidate* c) { return c->workspace_bytes == 0; }));
  std::vector<Candidate> result;
  for (const Candidate* c : portfolio) result.push_back(*c);
  return result;
}

std::vector<Candidate> MakeRunnersUp(const Candidate& winner, Candidates eligible) {
  std::sort(eligible.begin(), eligible.end(),
            [](const Candidate* a, const Candidate* b) { return DominatorsFirst(*a, *b); });
  std::vector<Candidate> result;
  for (const Candidate* c : eligible) {
    if (result.size() == kRunnersUp) break;
    if (c != &winner) result.push_back(*c);
  }
  return result;
}

// A limit below everything that was left out for memory loses nothing by it.
Evidence EvidenceUnder(const IndexedTuning& indexed, const Constraints& constraints) {
  if (decision::IsIncompleteForMemoryOnly(indexed.tuning.evidence,
                                          indexed.tuning.incomplete_reasons) &&
      constraints.max_workspace_bytes && indexed.least_skipped_workspace &&
      *constraints.max_workspace_bytes < *indexed.least_skipped_workspace) {
    return Evidence::kMeasured;
  }
  return indexed.tuning.evidence;
}

void NoteEvidence(const IndexedTuning& indexed, Evidence evidence,
                  std::vector<std::string>* notes) {
  if (evidence >= Evidence::kMeasured) return;
  if (evidence == Evidence::kHeuristic) {
    notes->push_back("in the order of cuDNN's heuristic; nothing was timed");
  } else if (evidence == Evidence::kObserved) {
    notes->push_back("what a program settled on by itself");
  }
  if (!indexed.tuning.incomplete_message.empty()) {
    notes->push_back(indexed.tuning.incomplete_message);
  }
}

// "every candidate is banned by bans/1 (reason), bans/4 (reason)". `all_keep`: every usable one
// keeps to the constraints. Some that are not banned may be usable after another tuning, so they
// are counted.
std::string AllBanned(const IndexedTuning& indexed, const std::vector<size_t>& banned,
                      bool all_keep) {
  std::vector<const Ban*> bans;
  for (const size_t index : banned) {
    const Ban* const ban = indexed.BanOf(index);
    if (std::find(bans.begin(), bans.end(), ban) == bans.end()) bans.push_back(ban);
  }
  std::sort(bans.begin(), bans.end(),
            [](const Ban* a, const Ban* b) { return a->number < b->number; });
  const std::map<CandidateStatus, int>& unusable = indexed.bans->unusable;
  std::string message = absl::StrCat(
      "every ", unusable.empty() ? "" : "usable ", "candidate ",
      all_keep ? "" : "that keeps to the constraints ", "is banned by ",
      absl::StrJoin(bans, ", ",
                    [](std::string* out, const Ban* b) { out->append(b->NameAndReason()); }));
  if (unusable.empty()) return message;
  absl::StrAppend(&message, "; not banned, but not usable: ",
                  absl::StrJoin(unusable, ", ", [](std::string* out, const auto& entry) {
                    absl::StrAppend(out, entry.second, " ", std::string(Name(entry.first)));
                  }));
  return message;
}

// The candidates with the times that count under the constraints. A candidate
// that was not timed in that way, where others were, cannot win: it was known to
// be slower before, or its samples could not be compared with the others'.
class Timing {
 public:
  Timing(const KeptTuning& tuning, const Constraints& constraints)
      : candidates_(&tuning.candidates) {
    const CacheState cache_state = constraints.cache_state.value_or(tuning.cache_state);
    if (tuning.stop_reason == StopReason::kNone ||
        (constraints.launch == LaunchMode::kEager && cache_state == tuning.cache_state)) {
      return;
    }
    replaced_ = tuning.candidates;
    timed_.assign(replaced_.size(), false);
    bool any = false;
    for (size_t i = 0; i < replaced_.size(); ++i) {
      timed_[i] = UseTime(constraints.launch, cache_state, &replaced_[i]);
      any |= timed_[i];
    }
    if (any) {
      candidates_ = &replaced_;
      return;
    }
    timed_.clear();
    note_ = "ranked by times of eager launches in the tuning's cache state: none were taken ";
    note_ += constraints.launch == LaunchMode::kGraphCapture ? "of graph replays"
                                                             : "in the state asked for";
  }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

  const std::vector<Candidate>& candidates() const { return *candidates_; }
  bool CanWin(size_t index) const { return timed_.empty() || timed_[index]; }
  // A remark on the times for the caller; empty if there is none.
  const std::string& note() const { return note_; }

 private:
  static bool UseTime(LaunchMode launch, CacheState cache_state, Candidate* candidate) {
    for (const TimeSummary& time : candidate->other_times) {
      if (time.launch != launch || time.cache_state != cache_state) continue;
      candidate->median_us = time.median_us;
      candidate->q1_us = candidate->low_us = time.low_us;
      candidate->q3_us = candidate->high_us = time.high_us;
      candidate->sample_count = time.sample_count;
      // A replay is launched as part of a larger graph.
      if (launch == LaunchMode::kGraphCapture) candidate->host_us = 0;
      return candidate->timed();
    }
    return false;
  }

  const std::vector<Candidate>* candidates_;
  std::vector<Candidate> replaced_;
  std::vector<bool> timed_;
  std::string note_;
};

// The candidate that would win if nothing were banned, where that one is. `banned`: the indexes of
// those that keep to the constraints.
std::optional<BannedCandidate> BannedWinner(const IndexedTuning& indexed, const Timing& timing,
                                            Candidates eligible, Candidates slower,
                                            const std::vector<size_t>& banned,
                                            const Candidate* stock) {
  if (banned.empty()) return std::nullopt;
  const std::vector<Candidate>& candidates = timing.candidates();
  for (const size_t index : banned) {
    (timing.CanWin(index) ? eligible : slower).push_back(&candidates[index]);
  }
  const Candidate* const first = PickWinner(eligible.empty() ? slower : eligible, stock);
  const auto index = static_cast<size_t>(first - candidates.data());
  if (indexed.BanOf(index) == nullptr) return std::nullopt;
  return BannedCandidate{first->id, indexed.bans->by_index[index]};
}

}  // namespace

std::variant<Answer, Miss> MakeAnswer(const IndexedTuning& indexed, const Pin* pin,
                                      const Constraints& constraints, DataType data_type,
                                      absl::Time now) {
  const KeptTuning& tuning = indexed.tuning;
  const Timing timing(tuning, constraints);
  if (pin != nullptr && HasExpired(pin->expire_time, now)) pin = nullptr;
  std::vector<std::string> notes;
  Candidates eligible;
  Candidates slower;
  std::vector<size_t> banned;  // indexes of those that keep to the constraints
  const Candidate* pinned = nullptr;
  int ran_count = 0;
  int banned_count = 0;  // with those that were pruned
  bool any_timed = false;
  Answer answer;
  for (size_t i = 0; i < timing.candidates().size(); ++i) {
    const Candidate& c = timing.candidates()[i];
    if (!c.usable()) continue;
    ++ran_count;
    any_timed = any_timed || c.timed();
    const bool is_banned = indexed.BanOf(i) != nullptr;
    if (pin != nullptr && c.id == pin->candidate) {
      if (is_banned) {
        answer.banned = BannedCandidate{c.id, indexed.bans->by_index[i]};
      } else {
        pinned = &c;
      }
    }
    if (!Satisfies(c, constraints, data_type)) continue;
    if (is_banned) {
      banned.push_back(i);
      ++banned_count;
      continue;
    }
    ++answer.eligible_count;
    (timing.CanWin(i) ? eligible : slower).push_back(&c);
  }
  const Candidate* stock = indexed.stock ? &timing.candidates()[*indexed.stock] : nullptr;
  if (constraints.api == Api::kLegacy) {
    // The first of the legacy heuristic's list that the caller allows.
    Candidates allowed = eligible;
    allowed.insert(allowed.end(), slower.begin(), slower.end());
    for (const size_t index : banned) allowed.push_back(&timing.candidates()[index]);
    if (const Candidate* first = FirstListed(allowed, Api::kLegacy)) stock = first;
  }
  const std::optional<BannedCandidate> would_win =
      BannedWinner(indexed, timing, eligible, slower, banned, stock);
  if (eligible.empty()) eligible = std::move(slower);
  for (const PrunedGroup& group : indexed.pruned) {
    ran_count += group.count;
    if (!Satisfies(group.Example(), constraints, data_type)) continue;
    (group.banned != 0 ? banned_count : answer.eligible_count) += static_cast<int>(group.count);
  }
  const Candidate* winner = pinned != nullptr ? pinned : PickWinner(eligible, stock);
  if (winner == nullptr) {
    Miss miss{MissReason::kNoCandidate,
              absl::StrCat("none of the ", ran_count, " candidates that ",
                           any_timed ? "ran" : "could be built", " keeps to the constraints"),
              "", std::nullopt};
    if (!banned.empty()) {
      miss.message = AllBanned(indexed, banned, banned_count == ran_count);
      miss.banned = would_win;
    }
    return miss;
  }
  if (answer.banned) {
    notes.push_back(absl::StrCat("the pinned candidate ", ToText(answer.banned->candidate),
                                 " is banned by ", answer.banned->ban->NameAndReason()));
    pin = nullptr;
  } else if (would_win && pinned == nullptr) {
    answer.banned = would_win;
    notes.push_back(absl::StrCat(ToText(would_win->candidate), " would win, and is banned by ",
                                 would_win->ban->NameAndReason()));
  }
  if (pinned != nullptr) {
    answer.pinned = true;
    answer.pin_reason = pin->reason;
    notes.push_back(absl::StrCat("pinned: ", pin->reason));
    if (std::find(eligible.begin(), eligible.end(), pinned) == eligible.end()) {
      notes.push_back("the pinned candidate does not keep to the constraints");
    }
  } else if (pin != nullptr) {
    notes.push_back(absl::StrCat("the pinned candidate ", ToText(pin->candidate),
                                 " is not in this tuning, or did not run"));
  }
  answer.evidence = EvidenceUnder(indexed, constraints);
  if (decision::IsUnjudgedStock(*winner, tuning.incomplete_reasons, tuning.candidates)) {
    answer.evidence = std::min(answer.evidence, Evidence::kHeuristic);
  }
  NoteEvidence(indexed, answer.evidence, &notes);
  if (!timing.note().empty()) notes.push_back(timing.note());
  if (indexed.stand_in != nullptr) {
    notes.push_back("kept in memory: what was measured stays until it is measured anew");
  } else if (!indexed.persisted) {
    notes.push_back("not written to disk yet");
  }
  answer.winner = *winner;
  answer.portfolio = MakePortfolio(*winner, eligible, stock);
  answer.runners_up = MakeRunnersUp(*winner, eligible);
  answer.origin = tuning.origin;
  answer.environment_name = indexed.EnvironmentName();
  answer.tune_time = tuning.tune_time;
  answer.candidate_count = indexed.candidate_count;
  answer.tuning_id = indexed.digest.ToString();
  answer.persisted = indexed.persisted;
  answer.stands_in = indexed.stand_in != nullptr;
  answer.note = absl::StrJoin(notes, "; ");
  return answer;
}

}  // namespace convtune::lookup
