#include "server/jobs/job_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::jobs {

namespace {

uint64_t FirstNumber(absl::Time now) {
  const absl::Time begin = absl::FromCivil(absl::CivilSecond(2026, 1, 1), absl::UTCTimeZone());
  const int64_t seconds = absl::ToInt64Seconds(now - begin);
  return static_cast<uint64_t>(std::max<int64_t>(seconds, 0)) * JobTable::kNumbersPerSecond + 1;
}

void ClearProgress(v1::TuningJob* job) {
  job->clear_current_problem();
  job->clear_current_candidates_done();
  job->clear_current_candidates_total();
}

}  // namespace

JobTable::JobTable(const Clock* clock) : clock_(clock), next_job_(FirstNumber(clock->Now())) {}

JobTable::Job* JobTable::Add(const std::string& environment) {
  Job* const job = &jobs_[next_job_];
  job->number = next_job_++;
  job->snapshot.set_name(absl::StrCat("jobs/", job->number));
  job->snapshot.set_state(v1::JOB_STATE_QUEUED);
  job->snapshot.set_environment(environment);
  job->snapshot.set_persisted(true);
  *job->snapshot.mutable_create_time() = ToProto(clock_->Now());
  return job;
}

absl::StatusOr<JobTable::Created> JobTable::Create(const std::string& environment,
                                                   int problem_count, int skipped_count,
                                                   const std::string& request_id,
                                                   uint64_t fingerprint) {
  MutexLock lock(mutex_);
  if (!request_id.empty()) {
    const auto known = by_request_.find(request_id);
    if (known != by_request_.end()) {
      const Job& job = jobs_.at(known->second);
      if (job.fingerprint != fingerprint) {
        return absl::AlreadyExistsError(absl::StrCat(
            "request_id: must be new for a new request, and made ", job.snapshot.name()));
      }
      return Created{job.snapshot, false};
    }
  }
  Job* const job = Add(environment);
  job->request_id = request_id;
  job->fingerprint = fingerprint;
  job->snapshot.set_problem_count(problem_count);
  job->snapshot.set_succeeded_count(skipped_count);
  job->snapshot.set_skipped_count(skipped_count);
  if (!request_id.empty()) by_request_.emplace(request_id, job->number);
  EndIfComplete(job);
  return Created{job->snapshot, true};
}

absl::StatusOr<JobTable::Job*> JobTable::Find(const std::string& name) {
  absl::string_view digits = name;
  uint64_t number = 0;
  if (!absl::ConsumePrefix(&digits, "jobs/") || !absl::SimpleAtoi(digits, &number)) {
    return ViolationError(
        {"name", absl::StrCat("must be \"jobs/\" and a number, is \"", name, "\"")});
  }
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) {
    return MissingError({"job", name}, absl::StrCat("there is no ", name));
  }
  return &found->second;
}

JobTable::Job* JobTable::FindOpen(const std::string& name) {
  const absl::StatusOr<Job*> job = Find(name);
  return job.ok() && !HasEnded((*job)->snapshot) ? *job : nullptr;
}

void JobTable::Changed(Job* job) {
  for (const auto& [token, on_change] : job->watchers) on_change(job->snapshot, job->interrupted);
  if (HasEnded(job->snapshot)) job->watchers.clear();
}

void JobTable::End(Job* job, v1::JobState state) {
  job->snapshot.set_state(state);
  // The wall clock may have been set back.
  *job->snapshot.mutable_end_time() =
      ToProto(std::max(clock_->Now(), FromProto(job->snapshot.create_time())));
  ClearProgress(&job->snapshot);
  job->subscriptions.clear();
  Changed(job);
  ended_.push_back(job->number);
  while (ended_.size() > kKeptEnded) {
    const auto oldest = jobs_.find(ended_.front());
    by_request_.erase(oldest->second.request_id);
    jobs_.erase(oldest);
    ended_.pop_front();
  }
}

// Ends the job if all its problems are counted; else tells who watches.
void JobTable::EndIfComplete(Job* job) {
  const v1::TuningJob& snapshot = job->snapshot;
  if (snapshot.succeeded_count() + snapshot.failed_count() < snapshot.problem_count()) {
    return Changed(job);
  }
  End(job, snapshot.failed_count() > 0 ? v1::JOB_STATE_FAILED : v1::JOB_STATE_SUCCEEDED);
}

std::optional<std::string> JobTable::Collect(const std::string& environment) {
  MutexLock lock(mutex_);
  std::string& name = collecting_[environment];
  Job* job = FindOpen(name);
  if (job == nullptr) {
    job = Add(environment);
    job->snapshot.set_abandoned(true);
    name = job->snapshot.name();
  }
  v1::TuningJob& snapshot = job->snapshot;
  const int open = snapshot.problem_count() - snapshot.succeeded_count() - snapshot.failed_count();
  if (open >= kMaxAbandoned) return std::nullopt;
  snapshot.set_problem_count(snapshot.problem_count() + 1);
  Changed(job);
  return name;
}

void JobTable::Submit(const std::string& name, TuningQueue* queue, const WorkSpec& spec,
                      Priority priority, SteadyTime expires, const std::function<bool()>& needed) {
  const std::string text = spec.key.problem_text;
  Subscriber subscriber;
  subscriber.done = [this, name, text](const WorkResult& result) {
    ProblemDone(name, text, result);
  };
  subscriber.progress = [this, name, text](const WorkProgress& progress) {
    Progress(name, text, progress);
  };
  subscriber.expires = expires;
  const uint64_t number = queue->Submit(spec, priority, std::move(subscriber), needed);
  {
    MutexLock lock(mutex_);
    if (Job* const job = FindOpen(name)) {
      job->queue = queue;
      v1::TuningJob& snapshot = job->snapshot;
      if (number != 0) {
        job->subscriptions.insert_or_assign(text, number);
        return;
      }
      if (snapshot.abandoned()) {  // it is kept already, or not wanted any more
        snapshot.set_problem_count(snapshot.problem_count() - 1);
      } else {
        snapshot.set_succeeded_count(snapshot.succeeded_count() + 1);
        snapshot.set_skipped_count(snapshot.skipped_count() + 1);
      }
      EndIfComplete(job);
    }
  }
  // The job has ended already: the work is through, or the job was cancelled.
  queue->Unsubscribe(number);
}

void JobTable::Progress(const std::string& name, const std::string& problem_text,
                        const WorkProgress& progress) {
  MutexLock lock(mutex_);
  Job* const job = FindOpen(name);
  if (job == nullptr) return;
  v1::TuningJob& snapshot = job->snapshot;
  snapshot.set_state(v1::JOB_STATE_RUNNING);
  snapshot.set_current_problem(problem_text);
  snapshot.set_current_candidates_done(progress.candidates_done);
  snapshot.set_current_candidates_total(progress.candidates_total);
  Changed(job);
}

void JobTable::ProblemDone(const std::string& name, const std::string& problem_text,
                           const WorkResult& result) {
  MutexLock lock(mutex_);
  Job* const job = FindOpen(name);
  if (job == nullptr) return;
  job->subscriptions.erase(problem_text);
  v1::TuningJob& snapshot = job->snapshot;
  snapshot.set_state(v1::JOB_STATE_RUNNING);
  if (snapshot.current_problem() == problem_text) ClearProgress(&snapshot);
  if (absl::IsCancelled(result.status)) {
    job->interrupted = true;
    End(job, v1::JOB_STATE_CANCELLED);
    return;
  }
  if (result.status.ok()) {
    snapshot.set_succeeded_count(snapshot.succeeded_count() + 1);
    if (!result.persisted) snapshot.set_persisted(false);
  } else {
    snapshot.set_failed_count(snapshot.failed_count() + 1);
    if (snapshot.failures_size() < kKeptFailures) {
      v1::TuningFailure* const failure = snapshot.add_failures();
      failure->set_problem_text(problem_text);
      failure->set_reason(std::string(result.status.message()));
    }
  }
  EndIfComplete(job);
}

absl::StatusOr<v1::TuningJob> JobTable::Cancel(const std::string& name) {
  std::map<std::string, uint64_t> subscriptions;
  TuningQueue* queue = nullptr;
  v1::TuningJob cancelled;
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(Job* const job, Find(name));
    queue = job->queue;
    subscriptions = std::exchange(job->subscriptions, {});
    if (!HasEnded(job->snapshot)) End(job, v1::JOB_STATE_CANCELLED);
    cancelled = job->snapshot;
  }
  for (const auto& [text, number] : subscriptions) queue->Unsubscribe(number);
  return cancelled;
}

std::vector<v1::TuningJob> JobTable::List() const {
  std::vector<v1::TuningJob> jobs;
  MutexLock lock(mutex_);
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) jobs.push_back(it->second.snapshot);
  return jobs;
}

absl::StatusOr<uint64_t> JobTable::Watch(const std::string& name, JobCallback on_change) {
  MutexLock lock(mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is draining");
  ASSIGN_OR_RETURN(Job* const job, Find(name));
  on_change(job->snapshot, job->interrupted);
  if (!HasEnded(job->snapshot)) job->watchers.emplace(next_watcher_, std::move(on_change));
  return next_watcher_++;
}

}  // namespace convtune::jobs
