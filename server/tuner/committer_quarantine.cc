// Committer: the candidates that must not run.
#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"
#include "server/tuner/committer.h"
#include "server/tuner/ranking.h"
#include "spdlog/spdlog.h"

namespace convtune {
namespace {

// False if it is not among those that ran.
bool TakeOut(const QuarantineEntry& entry, Tuning* tuning) {
  const auto candidate =
      std::find_if(tuning->candidates.begin(), tuning->candidates.end(),
                   [&entry](const Candidate& c) { return c.id == entry.candidate; });
  if (candidate == tuning->candidates.end() || !candidate->ran()) return false;
  candidate->status = CandidateStatus::kQuarantined;
  candidate->error_message = entry.message;
  RankCandidates(&tuning->candidates);
  NoteQuarantined(tuning);
  return true;
}

}  // namespace

void Committer::Quarantine(const QuarantineEntry& entry) {
  {
    MutexLock state_lock(state_mutex_);
    quarantine_[Texts(entry.key)][entry.candidate] = entry;
  }
  MutexLock lock(mutex_);
  observer_(entry.key, true);
  const absl::Status status = store_->PutQuarantine(entry);
  if (!status.ok()) {
    spdlog::error("could not write a quarantine entry: {}", status.ToString());
    WakeRetries();
    pending_quarantine_.push_back(entry);
  }
  TakeOutOfAnswers(entry);
}

int64_t Committer::quarantined() const {
  MutexLock lock(state_mutex_);
  int64_t count = 0;
  for (const auto& [texts, candidates] : quarantine_) {
    count += static_cast<int64_t>(candidates.size());
  }
  return count;
}

std::map<CandidateId, QuarantineEntry> Committer::QuarantinedOf(const TuningKey& key) const {
  MutexLock lock(state_mutex_);
  const auto found = quarantine_.find(Texts(key));
  if (found == quarantine_.end()) return {};
  return found->second;
}

void Committer::TakeOutOfAnswers(const QuarantineEntry& entry) {
  if (index_->Find(entry.key).tuning == nullptr) return;
  const absl::StatusOr<Environment> environment = Environment::Parse(entry.key.environment_text);
  if (!environment.ok()) return;
  const auto instead = instead_.find(Texts(entry.key));
  if (instead == instead_.end()) {
    absl::StatusOr<Tuning> tuning = GetLocked(entry.key);
    if (!tuning.ok() || !TakeOut(entry, &*tuning)) return;
    Written(*tuning, *environment, store_->PutTuning(*tuning, *environment));
    return;
  }
  std::shared_ptr<const IndexedTuning> outdated = Outdated(entry.key);
  const auto waiting = pending_.find(Texts(entry.key));
  absl::StatusOr<Tuning> stored =
      waiting != pending_.end() ? waiting->second.tuning : store_->GetTuning(entry.key);
  if (stored.ok() && TakeOut(entry, &*stored)) {
    const absl::Status written = store_->PutTuning(*stored, *environment);
    if (!written.ok()) Keep(*stored, *environment, written);
    outdated = index_->Prepare(*stored, /*persisted=*/true);
  }
  Tuning served = instead->second;
  TakeOut(entry, &served);
  ServeInstead(served, std::move(outdated));
}

absl::Status Committer::LiftQuarantine(const TuningKey& key,
                                       const std::function<bool(const QuarantineEntry&)>& lifted) {
  MutexLock lock(mutex_);
  std::vector<CandidateId> candidates;
  for (const auto& [candidate, entry] : QuarantinedOf(key)) {
    if (lifted(entry)) candidates.push_back(candidate);
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
