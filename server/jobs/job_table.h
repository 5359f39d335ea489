// The JobTable keeps jobs and who watches them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/model/environment.h"
#include "server/jobs/tuning_queue.h"
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
  // Open problems of the abandoned look-ups of one environment.
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

  // Queues the job's work on a problem. Where the queue adds nothing (see TuningQueue::Submit), it
  // counts as skipped; in a job of abandoned look-ups it does not count. `expires`: as in
  // Subscriber. All work of a job is in one queue.
  void Submit(const std::string& name, TuningQueue* queue, const WorkSpec& spec, Priority priority,
              SteadyTime expires, const std::function<bool()>& needed);
  // A problem is being worked on.
  void Progress(const std::string& name, const std::string& problem_text,
                const WorkProgress& progress);
  // A problem ended. CANCELLED, which is what a draining queue gives, ends the
  // job as cancelled, and interrupted.
  void ProblemDone(const std::string& name, const std::string& problem_text,
                   const WorkResult& result);
  // Ends the job, unless it ended, and returns it. Work that nobody else wants is dropped.
  absl::StatusOr<v1::TuningJob> Cancel(const std::string& name);

  absl::StatusOr<v1::TuningJob> Get(const std::string& name) {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const Job* const job, Find(name));
    return job->snapshot;
  }
  // All of them, the newest first.
  std::vector<v1::TuningJob> List() const;
  // Calls back before it returns, on every change, and last with a job that HasEnded: under
  // the lock of the table, so that `on_change` must return at once and call nothing here.
  // Returns a token for StopWatching. NOT_FOUND, and UNAVAILABLE after Stop.
  absl::StatusOr<uint64_t> Watch(const std::string& name, JobCallback on_change);
  // After it returns, the callback is not called again.
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
    TuningQueue* queue = nullptr;                   // where the work is
    std::map<std::string, uint64_t> subscriptions;  // in the queue, by problem
    std::map<uint64_t, JobCallback> watchers;       // by token; none once it has ended
  };

  absl::StatusOr<Job*> Find(const std::string& name) REQUIRES(mutex_);
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
