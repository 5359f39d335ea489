#include "server/lookup/answer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/convert/ban_proto.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/note_rules.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/evidence.h"
#include "server/lookup/indexed_tuning.h"

namespace convtune::lookup {
namespace {

using Candidates = std::vector<const Candidate*>;

// See convtune.v1.Answer.portfolio.
Candidates MakePortfolio(const Candidate& winner, const Candidates& eligible,
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
  return portfolio;
}

Candidates MakeRunnersUp(const Candidate& winner, Candidates eligible) {
  std::sort(eligible.begin(), eligible.end(),
            [](const Candidate* a, const Candidate* b) { return DominatorsFirst(*a, *b); });
  std::erase(eligible, &winner);
  eligible.resize(std::min(eligible.size(), kRunnersUp));
  return eligible;
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

// The index of the candidate that would win if nothing were banned, where that one is. `banned`:
// the indexes of those that keep to the constraints.
std::optional<size_t> BannedWinner(const IndexedTuning& indexed, const Timing& timing,
                                   Candidates eligible, Candidates slower,
                                   const std::vector<size_t>& banned, const Candidate* stock) {
  if (banned.empty()) return std::nullopt;
  const std::vector<Candidate>& candidates = timing.candidates();
  for (const size_t index : banned) {
    (timing.CanWin(index) ? eligible : slower).push_back(&candidates[index]);
  }
  const Candidate* const first = PickWinner(eligible.empty() ? slower : eligible, stock);
  const auto index = static_cast<size_t>(first - candidates.data());
  return indexed.BanOf(index) == nullptr ? std::nullopt : std::optional(index);
}

}  // namespace

v1::BatchGetResult MakeMiss(v1::MissReason reason, const std::string& message) {
  v1::BatchGetResult result;
  result.mutable_miss()->set_reason(reason);
  result.mutable_miss()->set_message(message);
  return result;
}

v1::BatchGetResult MakeAnswer(const IndexedTuning& indexed, const Pin* pin,
                              const Constraints& constraints, const ConvProblem& problem,
                              absl::Time now) {
  const DataType data_type = problem.data_type();
  const KeptTuning& tuning = indexed.tuning;
  const Timing timing(tuning, constraints);
  if (pin != nullptr && HasExpired(pin->expire_time, now)) pin = nullptr;
  std::vector<std::string> notes;
  Candidates eligible;
  Candidates slower;
  std::vector<size_t> banned;  // indexes of those that keep to the constraints
  const Candidate* pinned = nullptr;
  std::optional<size_t> banned_pin;  // its index
  int ran_count = 0;
  int eligible_count = 0;  // these two with those that were pruned
  int banned_count = 0;
  bool any_timed = false;
  for (size_t i = 0; i < timing.candidates().size(); ++i) {
    const Candidate& c = timing.candidates()[i];
    if (!c.usable()) continue;
    ++ran_count;
    any_timed = any_timed || c.timed();
    const bool is_banned = indexed.BanOf(i) != nullptr;
    if (pin != nullptr && c.id == pin->candidate) {
      if (is_banned) {
        banned_pin = i;
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
    ++eligible_count;
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
  const std::optional<size_t> would_win =
      BannedWinner(indexed, timing, eligible, slower, banned, stock);
  if (eligible.empty()) eligible = std::move(slower);
  for (const PrunedGroup& group : indexed.pruned) {
    ran_count += group.count;
    if (!Satisfies(group.Example(), constraints, data_type)) continue;
    (group.banned != 0 ? banned_count : eligible_count) += static_cast<int>(group.count);
  }
  const Candidate* winner = pinned != nullptr ? pinned : PickWinner(eligible, stock);
  const auto id_of = [&timing](size_t index) { return timing.candidates()[index].id; };
  if (winner == nullptr) {
    v1::BatchGetResult result =
        MakeMiss(v1::MISS_REASON_NO_CANDIDATE,
                 absl::StrCat("none of the ", ran_count, " candidates that ",
                              any_timed ? "ran" : "could be built", " keeps to the constraints"));
    v1::Miss& miss = *result.mutable_miss();
    if (!banned.empty()) miss.set_message(AllBanned(indexed, banned, banned_count == ran_count));
    if (would_win) {
      *miss.mutable_banned() = ToProto(id_of(*would_win), *indexed.BanOf(*would_win));
    }
    return result;
  }
  v1::BatchGetResult result;
  v1::Answer& answer = *result.mutable_answer();
  if (const auto named = banned_pin || pinned != nullptr ? banned_pin : would_win) {
    const Ban& ban = *indexed.BanOf(*named);
    const std::string text = ToText(id_of(*named));
    notes.push_back(absl::StrCat(banned_pin ? "the pinned candidate " : "", text,
                                 banned_pin ? "" : " would win, and", " is banned by ",
                                 ban.NameAndReason()));
    *answer.mutable_banned() = ToProto(id_of(*named), ban);
    if (banned_pin) pin = nullptr;
  }
  if (pinned != nullptr) {
    answer.set_pinned(true);
    answer.set_pin_reason(pin->reason);
    notes.push_back(absl::StrCat("pinned: ", pin->reason));
    if (std::find(eligible.begin(), eligible.end(), pinned) == eligible.end()) {
      notes.push_back("the pinned candidate does not keep to the constraints");
    }
  } else if (pin != nullptr) {
    notes.push_back(absl::StrCat("the pinned candidate ", ToText(pin->candidate),
                                 " is not in this tuning, or did not run"));
  }
  Evidence evidence = EvidenceUnder(indexed, constraints);
  if (decision::IsUnjudgedStock(*winner, tuning.incomplete_reasons, tuning.candidates)) {
    evidence = std::min(evidence, Evidence::kHeuristic);
  }
  NoteEvidence(indexed, evidence, &notes);
  if (!timing.note().empty()) notes.push_back(timing.note());
  if (indexed.stand_in != nullptr) {
    notes.push_back("kept in memory: what was measured stays until it is measured anew");
  } else if (!indexed.persisted) {
    notes.push_back("not written to disk yet");
  }
  const Operation operation = problem.operation();
  Fill(*winner, operation, answer.mutable_winner());
  for (const Candidate* c : MakePortfolio(*winner, eligible, stock)) {
    Fill(*c, operation, answer.add_portfolio());
  }
  for (const Candidate* c : MakeRunnersUp(*winner, eligible)) {
    Fill(*c, operation, answer.add_runners_up());
  }
  answer.set_evidence(static_cast<v1::Evidence>(evidence));
  answer.set_origin(static_cast<v1::Origin>(tuning.origin));
  answer.set_environment(indexed.EnvironmentName());
  *answer.mutable_tune_time() = ToProto(tuning.tune_time);
  answer.set_candidate_count(indexed.candidate_count);
  answer.set_eligible_count(eligible_count);
  answer.set_tuning_id(indexed.digest.ToString());
  answer.set_persisted(indexed.persisted);
  answer.set_stands_in(indexed.stand_in != nullptr);
  answer.set_note(absl::StrJoin(notes, "; "));
  return result;
}

}  // namespace convtune::lookup
