// The part of the publisher that listens to programs and tunes what they want.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "server/tuner/publisher.h"
#include "spdlog/spdlog.h"

namespace convtune {
namespace {

constexpr absl::Duration kKeepAfter = absl::Seconds(5);
constexpr absl::Duration kLookForIdle = absl::Seconds(1);
constexpr absl::Duration kFirstPause = absl::Minutes(10);
constexpr absl::Duration kLongestPause = absl::Hours(24);
constexpr char kTooLittle[] = "what tuning gave is below --publish-evidence";

}  // namespace

void Publisher::Receive(const void* data, size_t size) {
  const absl::Time now = options_.clock->Now();
  absl::StatusOr<Report> report = ReadReport(data, size, now);
  {
    MutexLock lock(mutex_);
    ++status_.datagrams.received;
    if (!report.ok()) ++status_.datagrams.malformed;
  }
  if (!report.ok()) {
    spdlog::debug("ignored a datagram: {}", std::string(report.status().message()));
    return;
  }
  if (auto* tuning = std::get_if<ReportedTuning>(&*report)) {
    ReceiveTuning(std::move(*tuning));
    return;
  }
  const auto& miss = std::get<ReportedMiss>(*report);
  // A program that started before the problem had its choice.
  const bool is_wanted = miss.wants_tuning && !releases_.HasChoice(miss.key);
  MutexLock lock(mutex_);
  status_.datagrams.misses += miss.count;
  if (!is_wanted || !wanted_.AddMisses(miss.key, miss.count, now)) return;
  DueBy(absl::Now() + (options_.publish.tune_wanted ? kLookForIdle : kKeepAfter));
}

void Publisher::ReceiveTuning(ReportedTuning reported) {
  const TuningKey key = reported.tuning.key;
  {
    MutexLock lock(mutex_);
    if (status_.datagrams.observed >= kMostObserved) return;
  }
  const IndexHit known = options_.index->Find(key);
  if (known.tuning != nullptr) {
    const Evidence evidence = known.tuning->tuning.evidence;
    if (evidence > Evidence::kObserved) return;
    if (evidence == Evidence::kObserved) {
      const absl::StatusOr<Tuning> stored = options_.committer->Get(key);
      if (stored.ok() && !AddsToObserved(*stored, &reported.tuning)) return;
    }
  }
  const auto counts = options_.index->Counts();
  if (!counts.contains(key.environment_text) && counts.size() >= kMostEnvironments) return;
  options_.committer->Commit(std::move(reported.tuning), options_.complete(reported.environment),
                             /*forced=*/true);
  MutexLock lock(mutex_);
  ++status_.datagrams.observed;
}

void Publisher::SettleWanted(const std::vector<TuningKey>& keys) {
  for (const TuningKey& key : keys) {
    if (!releases_.HasChoice(key)) continue;
    MutexLock lock(mutex_);
    wanted_.Erase(key);
    tried_until_.erase(Texts(key));
  }
}

void Publisher::NoteTuned(const Work& work) {
  for (const auto& [key, status] : work.tuned) {
    if (absl::IsCancelled(status) || releases_.HasChoice(key)) continue;
    MutexLock lock(mutex_);
    wanted_.AddFailure(key, status.ok() ? kTooLittle : std::string(status.message()));
  }
}

void Publisher::KeepWanted() {
  WantedList::Changes changes;
  {
    MutexLock lock(mutex_);
    wanted_.Forget(options_.clock->Now());
    changes = wanted_.TakeChanges();
  }
  if (changes.empty()) return;
  const absl::Status kept = options_.store->UpdateWanted(changes.put, changes.drop);
  if (kept.ok()) return;
  spdlog::warn("wanted problems wait for the disk: {}", kept.ToString());
  MutexLock lock(mutex_);
  wanted_.GiveBack(changes);
  DueBy(absl::Now() + kKeepAfter);
}

void Publisher::TuneWanted() {
  if (!options_.publish.tune_wanted) return;
  const absl::Time now = absl::Now();
  std::vector<WantedProblem> wanted;
  std::set<std::string> busy;
  {
    MutexLock lock(mutex_);
    if (wanted_.size() == 0) return;
    wanted = wanted_.MostWanted();
    busy = tuning_;
    std::erase_if(wanted, [this, now](const WantedProblem& problem) REQUIRES(mutex_) {
      const auto tried = tried_until_.find(Texts(problem.key));
      return tried != tried_until_.end() && now < tried->second;
    });
  }
  for (const WantedProblem& problem : wanted) {
    const std::string& environment = problem.key.environment_text;
    if (!busy.insert(environment).second) continue;
    const TuningKey key = problem.key;
    {
      MutexLock lock(mutex_);
      tuning_.insert(environment);
      tried_until_[Texts(key)] =
          now + std::min(kLongestPause, kFirstPause * (1 << std::min(problem.attempts, 10)));
    }
    const bool taken = options_.tune(key, [this, key](const absl::Status& status) {
      MutexLock lock(mutex_);
      tuning_.erase(key.environment_text);
      if (absl::IsCancelled(status)) tried_until_.erase(Texts(key));
      work_.tuned.emplace_back(key, status);
      DueBy(absl::Now());
    });
    if (taken) continue;
    MutexLock lock(mutex_);
    tuning_.erase(environment);
    tried_until_.erase(Texts(key));
  }
  MutexLock lock(mutex_);
  DueBy(absl::Now() + kLookForIdle);
}

absl::StatusOr<std::vector<WantedProblem>> Publisher::ListWanted(const std::string& environment) {
  std::string text;
  if (!environment.empty()) {
    absl::StatusOr<std::string> resolved = options_.resolve(environment);
    if (!resolved.ok()) return resolved.status();
    text = *std::move(resolved);
  }
  MutexLock lock(mutex_);
  return wanted_.MostWanted(text);
}

}  // namespace convtune
