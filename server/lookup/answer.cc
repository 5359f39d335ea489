#include "server/lookup/answer.h"

#include <algorithm>
#include <map>
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

// The evidence for callers under these constraints: a caller whose workspace limit is below all
// that was left out for memory loses nothing by that.
Evidence EvidenceUnder(const IndexedTuning& indexed, const Constraints& constraints) {
  if (indexed.tuning.evidence == Evidence::kIncomplete &&
      indexed.tuning.incomplete_reasons == ReasonBit(IncompleteReason::kMemory) &&
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

// "every candidate is banned by bans/1 (reason), bans/4 (reason)". `bans` has each with its number;
// `all_keep`: every usable candidate keeps to the constraints. Some that are not banned may be
// usable after another tuning, so they are counted.
std::string AllBanned(const IndexedTuning& indexed, const std::map<int64_t, const Ban*>& bans,
                      bool all_keep) {
  const std::map<CandidateStatus, int>& unusable = indexed.bans->unusable;
  std::string message =
      absl::StrCat("every ", unusable.empty() ? "" : "usable ", "candidate ",
                   all_keep ? "" : "that keeps to the constraints ", "is banned by ",
                   absl::StrJoin(bans, ", ", [](std::string* out, const auto& numbered) {
                     out->append(numbered.second->NameAndReason());
                   }));
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
  // Of a candidate of candidates().
  size_t IndexOf(const Candidate& c) const { return static_cast<size_t>(&c - candidates_->data()); }
  // Those of `allowed` that can win, or all of them where none can.
  Candidates Racing(Candidates allowed) const {
    const auto cannot_win = [this](const Candidate* c) { return !timed_[IndexOf(*c)]; };
    if (!timed_.empty() && !std::all_of(allowed.begin(), allowed.end(), cannot_win)) {
      std::erase_if(allowed, cannot_win);
    }
    return allowed;
  }
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
  const auto ban_of = [&](const Candidate* c) { return indexed.BanOf(timing.IndexOf(*c)); };
  Candidates allowed;   // keep to the constraints
  Candidates unbanned;  // of these
  allowed.reserve(timing.candidates().size());
  unbanned.reserve(timing.candidates().size());
  std::map<int64_t, const Ban*> bans;  // of what is allowed, by number
  const Candidate* pinned = nullptr;
  int ran_count = 0;
  bool any_timed = false;
  for (const Candidate& c : timing.candidates()) {
    if (!c.usable()) continue;
    ++ran_count;
    any_timed = any_timed || c.timed();
    if (pin != nullptr && c.id == pin->candidate) pinned = &c;
    if (!Satisfies(c, constraints, data_type)) continue;
    allowed.push_back(&c);
    if (const Ban* const ban = ban_of(&c)) {
      bans[ban->number] = ban;
    } else {
      unbanned.push_back(&c);
    }
  }
  // With those that were pruned.
  auto allowed_count = static_cast<int>(allowed.size());
  auto banned_count = static_cast<int>(allowed.size() - unbanned.size());
  for (const PrunedGroup& group : indexed.pruned) {
    ran_count += group.count;
    if (!Satisfies(group.Example(), constraints, data_type)) continue;
    allowed_count += static_cast<int>(group.count);
    if (group.banned != 0) banned_count += static_cast<int>(group.count);
  }
  const Candidate* stock = indexed.stock ? &timing.candidates()[*indexed.stock] : nullptr;
  if (constraints.api == Api::kLegacy) {
    // The first of the legacy heuristic's list that the caller allows.
    if (const Candidate* first = FirstListed(allowed, Api::kLegacy)) stock = first;
  }
  // What the bans keep from winning; nullptr: nothing.
  const Candidate* banned = bans.empty() ? nullptr : PickWinner(timing.Racing(allowed), stock);
  if (banned != nullptr && ban_of(banned) == nullptr) banned = nullptr;
  const Candidates eligible = timing.Racing(std::move(unbanned));
  const bool pin_is_banned = pinned != nullptr && ban_of(pinned) != nullptr;
  const Candidate* winner =
      pinned != nullptr && !pin_is_banned ? pinned : PickWinner(eligible, stock);
  if (winner == nullptr) {
    v1::BatchGetResult result =
        MakeMiss(v1::MISS_REASON_NO_CANDIDATE,
                 absl::StrCat("none of the ", ran_count, " candidates that ",
                              any_timed ? "ran" : "could be built", " keeps to the constraints"));
    v1::Miss& miss = *result.mutable_miss();
    if (!bans.empty()) miss.set_message(AllBanned(indexed, bans, banned_count == ran_count));
    if (banned != nullptr) *miss.mutable_banned() = ToProto(banned->id, *ban_of(banned));
    return result;
  }
  v1::BatchGetResult result;
  v1::Answer& answer = *result.mutable_answer();
  std::vector<std::string> notes;
  if (pinned != nullptr) banned = pin_is_banned ? pinned : nullptr;
  if (banned != nullptr) {
    const Ban& ban = *ban_of(banned);
    notes.push_back(absl::StrCat(pin_is_banned ? "the pinned candidate " : "", ToText(banned->id),
                                 pin_is_banned ? "" : " would win, and", " is banned by ",
                                 ban.NameAndReason()));
    *answer.mutable_banned() = ToProto(banned->id, ban);
  }
  if (pinned == winner) {
    answer.set_pinned(true);
    answer.set_pin_reason(pin->reason);
    notes.push_back(absl::StrCat("pinned: ", pin->reason));
    if (std::find(eligible.begin(), eligible.end(), pinned) == eligible.end()) {
      notes.push_back("the pinned candidate does not keep to the constraints");
    }
  } else if (pin != nullptr && pinned == nullptr) {
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
  answer.set_eligible_count(allowed_count - banned_count);
  answer.set_tuning_id(indexed.digest.ToString());
  answer.set_persisted(indexed.persisted);
  answer.set_stands_in(indexed.stand_in != nullptr);
  answer.set_note(absl::StrJoin(notes, "; "));
  return result;
}

}  // namespace convtune::lookup
