#include "proto/model/tuning.h"

namespace convtune {
namespace {

int64_t SampleCount(const Tuning& tuning) {
  int64_t count = 0;
  for (const Candidate& candidate : tuning.candidates) count += candidate.sample_count;
  return count;
}

}  // namespace

void AddReason(IncompleteReason reason, std::string_view words, Tuning* tuning) {
  tuning->incomplete |= ReasonBit(reason);
  if (!tuning->incomplete_reason.empty()) tuning->incomplete_reason += "; ";
  tuning->incomplete_reason += words;
}

bool QuarantineEntry::HoldsFor(absl::Duration budget, int worker_checker_version) const {
  if (checker_version < worker_checker_version) return false;
  return reason != QuarantineReason::kHung || hang_budget >= budget;
}

bool Supersedes(const Tuning& candidate, const Tuning& stored) {
  if (candidate.evidence != stored.evidence) return candidate.evidence > stored.evidence;
  const int64_t candidate_samples = SampleCount(candidate);
  const int64_t stored_samples = SampleCount(stored);
  if (candidate_samples != stored_samples) return candidate_samples > stored_samples;
  return candidate.tune_time > stored.tune_time;
}

}  // namespace convtune
