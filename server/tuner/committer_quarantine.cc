// Committer: the end of a quarantine.
#include <algorithm>
#include <vector>

#include "proto/base/status_macros.h"
#include "server/tuner/committer.h"

namespace convtune {

absl::Status Committer::LiftQuarantine(
    const TuningKey& key,
    const std::function<bool(const CandidateId&, const std::string&)>& lifted) {
  MutexLock lock(mutex_);
  std::vector<CandidateId> candidates;
  for (const auto& [candidate, reason] : QuarantinedOf(key)) {
    if (lifted(candidate, reason)) candidates.push_back(candidate);
  }
  if (candidates.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(store_->DeleteQuarantine(key, candidates));
  const auto among = [&candidates](const CandidateId& id) {
    return std::find(candidates.begin(), candidates.end(), id) != candidates.end();
  };
  std::erase_if(pending_quarantine_, [&](const QuarantineEntry& entry) {
    return entry.key == key && among(entry.candidate);
  });
  {
    MutexLock state_lock(state_mutex_);
    const auto found = quarantine_.find({key.environment_text, key.problem_text});
    if (found != quarantine_.end()) {
      std::erase_if(found->second, [&](const auto& entry) { return among(entry.first); });
      if (found->second.empty()) quarantine_.erase(found);
    }
  }
  observer_(key, true);
  return absl::OkStatus();
}

}  // namespace convtune
