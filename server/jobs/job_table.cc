#include "server/jobs/job_table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::jobs {

namespace {

uint64_t FirstNumber(absl::Time now) {
  const absl::Time begin = absl::FromCivil(absl::CivilSecond(2026, 1, 1), absl::UTCTimeZone());
  const int64_t seconds = absl::ToInt64Seconds(now - begin);
  return static_cast<uint64_t>(std::max<int64_t>(seconds, 0)) * JobTable::kNumbersPerSecond + 1;
}

}  // namespace

JobTable::JobTable(const Clock* clock) : clock_(clock), next_job_(FirstNumber(clock->Now())) {}

std::shared_ptr<JobTable::Job> JobTable::Add(const std::string& environment) {
  auto job = std::make_shared<Job>();
  job->number = next_job_++;
  job->snapshot.name = absl::StrCat("jobs/", job->number);
  job->snapshot.environment = environment;
  job->snapshot.create_time = clock_->Now();
  jobs_.emplace(job->number, job);
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
      const Job& job = *jobs_.at(known->second);
      if (job.fingerprint != fingerprint) {
        return absl::AlreadyExistsError(absl::StrCat(
            "request_id: must be new for a new request, and made ", job.snapshot.name));
      }
      return Created{job.snapshot, false};
    }
  }
  const std::shared_ptr<Job> job = Add(environment);
  job->request_id = request_id;
  job->fingerprint = fingerprint;
  job->snapshot.problem_count = problem_count;
  job->snapshot.succeeded_count = skipped_count;
  job->snapshot.skipped_count = skipped_count;
  if (!request_id.empty()) by_request_.emplace(request_id, job->number);
  EndIfComplete(job.get());
  return Created{job->snapshot, true};
}

absl::StatusOr<std::shared_ptr<JobTable::Job>> JobTable::Find(const std::string& name) const {
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
  return found->second;
}

void JobTable::Changed(Job* job) {
  for (const auto& [token, on_change] : job->watchers) on_change(job->snapshot);
  if (!job->snapshot.ended()) return;
  for (const auto& [token, on_change] : job->watchers) watched_.erase(token);
  job->watchers.clear();
}

void JobTable::End(Job* job, JobState state) {
  job->snapshot.state = state;
  // The wall clock may have been set back.
  job->snapshot.end_time = std::max(clock_->Now(), job->snapshot.create_time);
  job->snapshot.current_problem.clear();
  job->snapshot.current_candidates_done = 0;
  job->snapshot.current_candidates_total = 0;
  job->subscriptions.clear();
  Changed(job);
  ended_.push_back(job->number);
  while (ended_.size() > kKeptEnded) {
    const auto oldest = jobs_.find(ended_.front());
    by_request_.erase(oldest->second->request_id);
    jobs_.erase(oldest);
    ended_.pop_front();
  }
}

void JobTable::EndIfComplete(Job* job) {
  const JobSnapshot& snapshot = job->snapshot;
  if (snapshot.succeeded_count + snapshot.failed_count < snapshot.problem_count) return;
  End(job, snapshot.failed_count > 0 ? JobState::kFailed : JobState::kSucceeded);
}

std::optional<std::string> JobTable::Collect(const std::string& environment) {
  MutexLock lock(mutex_);
  std::shared_ptr<Job>& job = collecting_[environment];
  if (job == nullptr || job->snapshot.ended()) {
    job = Add(environment);
    job->snapshot.abandoned = true;
  }
  JobSnapshot& snapshot = job->snapshot;
  const int open = snapshot.problem_count - snapshot.succeeded_count - snapshot.failed_count;
  if (open >= kMaxAbandoned) return std::nullopt;
  ++snapshot.problem_count;
  Changed(job.get());
  return snapshot.name;
}

void JobTable::Uncollect(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = Find(name);
  if (!found.ok() || (*found)->snapshot.ended()) return;
  --(*found)->snapshot.problem_count;
  Changed(found->get());
  EndIfComplete(found->get());
}

bool JobTable::AddSubscription(const std::string& name, const std::string& problem_text,
                               uint64_t number) {
  MutexLock lock(mutex_);
  const auto job = Find(name);
  if (!job.ok() || (*job)->snapshot.ended()) return false;
  (*job)->subscriptions.insert_or_assign(problem_text, number);
  return true;
}

void JobTable::Progress(const std::string& name, const std::string& problem_text,
                        const WorkProgress& progress) {
  MutexLock lock(mutex_);
  const auto job = Find(name);
  if (!job.ok() || (*job)->snapshot.ended()) return;
  JobSnapshot& snapshot = (*job)->snapshot;
  snapshot.state = JobState::kRunning;
  snapshot.current_problem = problem_text;
  snapshot.current_candidates_done = progress.candidates_done;
  snapshot.current_candidates_total = progress.candidates_total;
  Changed(job->get());
}

void JobTable::ProblemDone(const std::string& name, const std::string& problem_text,
                           const WorkResult& result) {
  MutexLock lock(mutex_);
  const auto found = Find(name);
  if (!found.ok() || (*found)->snapshot.ended()) return;
  Job* job = found->get();
  job->subscriptions.erase(problem_text);
  JobSnapshot& snapshot = job->snapshot;
  snapshot.state = JobState::kRunning;
  if (snapshot.current_problem == problem_text) {
    snapshot.current_problem.clear();
    snapshot.current_candidates_done = 0;
    snapshot.current_candidates_total = 0;
  }
  if (absl::IsCancelled(result.status)) {
    snapshot.interrupted = true;
    End(job, JobState::kCancelled);
    return;
  }
  if (result.status.ok()) {
    ++snapshot.succeeded_count;
    if (!result.persisted) snapshot.persisted = false;
  } else {
    ++snapshot.failed_count;
    if (snapshot.failures.size() < kKeptFailures) {
      snapshot.failures.push_back({problem_text, std::string(result.status.message())});
    }
  }
  Changed(job);
  EndIfComplete(job);
}

void JobTable::ProblemSkipped(const std::string& name) {
  MutexLock lock(mutex_);
  const auto found = Find(name);
  if (!found.ok() || (*found)->snapshot.ended()) return;
  ++(*found)->snapshot.succeeded_count;
  ++(*found)->snapshot.skipped_count;
  Changed(found->get());
  EndIfComplete(found->get());
}

absl::StatusOr<std::pair<JobSnapshot, std::vector<uint64_t>>> JobTable::Cancel(
    const std::string& name) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, Find(name));
  std::vector<uint64_t> subscriptions;
  for (const auto& [text, number] : job->subscriptions) subscriptions.push_back(number);
  if (!job->snapshot.ended()) End(job.get(), JobState::kCancelled);
  return std::make_pair(job->snapshot, std::move(subscriptions));
}

absl::StatusOr<JobSnapshot> JobTable::Get(const std::string& name) const {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, Find(name));
  return job->snapshot;
}

absl::StatusOr<JobPage> JobTable::List(int page_size, const std::string& page_token) const {
  uint64_t before = 0;
  if (!page_token.empty() && !absl::SimpleAtoi(page_token, &before)) {
    return ViolationError({"page_token", "must be one that the previous page gave"});
  }
  MutexLock lock(mutex_);
  JobPage page;
  auto it = page_token.empty() ? jobs_.end() : jobs_.lower_bound(before);
  while (it != jobs_.begin()) {
    if (static_cast<int>(page.jobs.size()) == page_size) {
      page.next_page_token = PageTokenOf(page.jobs.back());
      break;
    }
    --it;
    page.jobs.push_back(it->second->snapshot);
  }
  return page;
}

absl::StatusOr<uint64_t> JobTable::Watch(const std::string& name, JobCallback on_change) {
  MutexLock lock(mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is draining");
  ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, Find(name));
  const uint64_t token = next_watcher_++;
  on_change(job->snapshot);
  if (!job->snapshot.ended()) {
    job->watchers.emplace(token, std::move(on_change));
    watched_.emplace(token, job);
  }
  return token;
}

void JobTable::StopWatching(uint64_t token) {
  MutexLock lock(mutex_);
  const auto found = watched_.find(token);
  if (found == watched_.end()) return;
  found->second->watchers.erase(token);
  watched_.erase(found);
}

void JobTable::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
}

}  // namespace convtune::jobs
