#include "proto/model/tuning/tuning.h"

namespace convtune {
namespace {

int64_t SampleCount(const Tuning& tuning) {
  int64_t count = 0;
  for (const Candidate& candidate : tuning.candidates) count += candidate.sample_count;
  return count;
}

}  // namespace

void AddReason(IncompleteReason reason, std::string_view words, Tuning* tuning) {
  tuning->incomplete_reasons |= ReasonBit(reason);
  if (!tuning->incomplete_message.empty()) tuning->incomplete_message += "; ";
  tuning->incomplete_message += words;
}

bool QuarantineEntry::HoldsFor(absl::Duration budget, int worker_checker_version) const {
  if (checker_version < worker_checker_version) return false;
  return reason != QuarantineReason::kHung || hang_budget >= budget;
}

TuningStanding StandingOf(const Tuning& tuning) {
  return {tuning.evidence, !tuning.has(IncompleteReason::kFirstConfigsOnly),
          tuning.conditions.clean() && !tuning.has(IncompleteReason::kNoClock)};
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
