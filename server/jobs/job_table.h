// The JobTable keeps jobs and who watches them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/model/environment.h"
#include "server/jobs/work_spec.h"

namespace convtune::jobs {

inline bool HasEnded(const v1::TuningJob& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

// `interrupted`: the daemon ended while it ran; nobody cancelled it.
using JobCallback = std::function<void(const v1::TuningJob& job, bool interrupted)>;

// A JobRequest asks for a job, which callers see as a v1::TuningJob.
struct JobRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  Demand demand{.on_miss = OnMiss::kTune};
  Priority priority = Priority::kBackground;
  std::string request_id;
};

// Thread-safe.
class JobTable {
 public:
  // Ended jobs that are kept; the oldest go first.
  static constexpr size_t kKeptEnded = 1000;
  // The first job's number is this times the seconds since 2026. No daemon makes as many jobs a
  // second, so that none gives a number that one before it has given.
  static constexpr uint64_t kNumbersPerSecond = 1'000'000;
  static constexpr int kKeptFailures = 20;
  // Of one environment.
  static constexpr int kMaxAbandoned = 1000;

  explicit JobTable(const Clock* clock);

  struct Created {
    v1::TuningJob job;
    bool is_new = true;
  };
  // A job of `problem_count` problems, `skipped_count` of which need no work.
  // A known `request_id` (not empty) gives the job that it made before.
  // ALREADY_EXISTS if that was for a request of another `fingerprint`.
  absl::StatusOr<Created> Create(const std::string& environment, int problem_count,
                                 int skipped_count, const std::string& request_id,
                                 uint64_t fingerprint = 0);

  // One problem more for the job of work whose callers have gone: the
  // environment's that has not ended, or a new one. Gives its name; nullopt where
  // kMaxAbandoned problems are kept so already.
  std::optional<std::string> Collect(const std::string& environment);
  // Takes one problem away from it again.
  void Uncollect(const std::string& name);

  // Notes the queue's number of the job's work on a problem, until it is done.
  // Returns false if the job ended meanwhile: then the caller unsubscribes.
  bool AddSubscription(const std::string& name, const std::string& problem_text, uint64_t number) {
    MutexLock lock(mutex_);
    Job* const job = FindOpen(name);
    if (job != nullptr) job->subscriptions.insert_or_assign(problem_text, number);
    return job != nullptr;
  }
  // A problem is being worked on.
  void Progress(const std::string& name, const std::string& problem_text,
                const WorkProgress& progress);
  // A problem ended. CANCELLED, which is what a draining queue gives, ends the
  // job as cancelled, and interrupted.
  void ProblemDone(const std::string& name, const std::string& problem_text,
                   const WorkResult& result);
  // A problem turned out to need no work.
  void ProblemSkipped(const std::string& name);
  // Ends the job, unless it ended. Returns it, and the numbers to unsubscribe.
  absl::StatusOr<std::pair<v1::TuningJob, std::vector<uint64_t>>> Cancel(const std::string& name);

  absl::StatusOr<v1::TuningJob> Get(const std::string& name) const {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const Job* const job, Find(name));
    return job->snapshot;
  }
  // All jobs, the newest first.
  std::vector<v1::TuningJob> List() const;
  // See Tuner::WatchJob and Tuner::StopWatching. UNAVAILABLE after Stop.
  absl::StatusOr<uint64_t> Watch(const std::string& name, JobCallback on_change);
  void StopWatching(uint64_t token) {
    MutexLock lock(mutex_);
    for (auto& [number, job] : jobs_) job.watchers.erase(token);
  }
  // Watch fails from now on.
  void Stop() {
    MutexLock lock(mutex_);
    stopping_ = true;
  }

 private:
  struct Job {
    uint64_t number = 0;
    v1::TuningJob snapshot;
    bool interrupted = false;  // see JobCallback
    std::string request_id;
    uint64_t fingerprint = 0;                       // of the request
    std::map<std::string, uint64_t> subscriptions;  // by problem
    std::map<uint64_t, JobCallback> watchers;       // by token; none once it has ended
  };

  absl::StatusOr<const Job*> Find(const std::string& name) const REQUIRES(mutex_);
  // nullptr if there is no such job, or it has ended.
  Job* FindOpen(const std::string& name) REQUIRES(mutex_);
  void EndIfComplete(Job* job) REQUIRES(mutex_);
  void End(Job* job, v1::JobState state) REQUIRES(mutex_);
  // Adds a new job of that environment.
  Job* Add(const std::string& environment) REQUIRES(mutex_);
  // Tells who watches.
  void Changed(Job* job) REQUIRES(mutex_);

  const Clock* const clock_;
  mutable Mutex mutex_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  uint64_t next_job_ GUARDED_BY(mutex_);
  uint64_t next_watcher_ GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Job> jobs_ GUARDED_BY(mutex_);
  std::deque<uint64_t> ended_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, uint64_t> by_request_ GUARDED_BY(mutex_);
  // Names by environment; one that has ended is not used any more.
  std::unordered_map<std::string, std::string> collecting_ GUARDED_BY(mutex_);
};

}  // namespace convtune::jobs
