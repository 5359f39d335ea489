#include "proto/model/tuning.h"

#include <algorithm>
#include <utility>

namespace convtune {
namespace {

int64_t SampleCount(const Tuning& tuning) {
  int64_t count = 0;
  for (const Candidate& candidate : tuning.candidates) count += candidate.sample_count;
  return count;
}

// Prefix of the message of a hang, before its budget.
constexpr std::string_view kHung = "hung with a budget of ";

}  // namespace

void AddReason(IncompleteReason reason, std::string_view words, Tuning* tuning) {
  tuning->incomplete |= ReasonBit(reason);
  if (!tuning->incomplete_reason.empty()) tuning->incomplete_reason += "; ";
  tuning->incomplete_reason += words;
}

void ReadReasonsOfWords(Tuning* tuning) {
  const std::string_view words = tuning->incomplete_reason;
  constexpr std::pair<std::string_view, IncompleteReason> kWords[] = {
      {"heuristic look-up: first configs only", IncompleteReason::kFirstConfigsOnly},
      {"the budget ended", IncompleteReason::kBudgetEnded},
      {"ended the listing", IncompleteReason::kListingCut},
      {"only one of cuDNN's APIs was searched", IncompleteReason::kOneApi},
      {"contended: ", IncompleteReason::kConditions},
      {"throttled: ", IncompleteReason::kConditions},
      {" ECC error", IncompleteReason::kConditions},
      {"not timed: ", IncompleteReason::kNotTimed},
      {"skipped for memory: ", IncompleteReason::kMemory},
      {"results could not be judged", IncompleteReason::kUnjudged},
      {"all candidates that ran are quarantined", IncompleteReason::kAllQuarantined},
      {"the other API's candidates are of a tuning before", IncompleteReason::kOtherApiCarried},
      {"settled on by a program", IncompleteReason::kObserved},
  };
  for (const auto& [text, reason] : kWords) {
    if (words.find(text) != std::string_view::npos) tuning->incomplete |= ReasonBit(reason);
  }
  if (tuning->has(IncompleteReason::kUnjudged)) {
    tuning->evidence = std::min(tuning->evidence, Evidence::kHeuristic);
  }
}

bool QuarantineEntry::HoldsFor(absl::Duration budget, int worker_checker_version) const {
  if (checker_version < worker_checker_version) return false;
  return reason != QuarantineReason::kHung || hang_budget >= budget;
}

void ReadReasonOfMessage(QuarantineEntry* entry) {
  const std::string_view text = entry->message;
  entry->reason = QuarantineReason::kCrashed;
  if (text.starts_with("wrote outside of its memory")) {
    entry->reason = QuarantineReason::kOutOfBounds;
  } else if (text.starts_with("its result is wrong")) {
    entry->reason = QuarantineReason::kWrongResult;
  } else if (text.starts_with("left ") && text.find("NaN") != std::string_view::npos) {
    entry->reason = QuarantineReason::kNotFinite;
  } else if (text.starts_with(kHung)) {
    const std::string_view rest = text.substr(kHung.size());
    absl::Duration budget;
    if (!absl::ParseDuration(std::string(rest.substr(0, rest.find(':'))), &budget)) return;
    entry->reason = QuarantineReason::kHung;
    entry->hang_budget = budget;
  }
}

TuningStanding StandingOf(const Tuning& tuning) {
  return {tuning.evidence, !tuning.has(IncompleteReason::kFirstConfigsOnly),
          tuning.conditions.clean()};
}

bool AllowsMore(int64_t wide, int64_t narrow) {
  return narrow != 0 && (wide == 0 || wide > narrow);
}

bool Supersedes(const Tuning& made, const Tuning& stored, bool forced) {
  const TuningStanding standing = StandingOf(made);
  const TuningStanding stored_standing = StandingOf(stored);
  if (standing != stored_standing) return standing > stored_standing;
  if (forced || AllowsMore(made.memory_budget_bytes, stored.memory_budget_bytes)) return true;
  if (AllowsMore(stored.memory_budget_bytes, made.memory_budget_bytes)) return false;
  const int64_t samples = SampleCount(made);
  const int64_t stored_samples = SampleCount(stored);
  if (samples != stored_samples) return samples > stored_samples;
  return made.tune_time > stored.tune_time;
}

}  // namespace convtune
