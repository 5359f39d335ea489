// Lookups answer callers, some of whom wait for a worker, and make jobs. A waiting caller is a
// record here and a subscriber in the queue, no thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/problem/conv_problem.h"
#include "server/jobs/job_table.h"
#include "server/jobs/tuning_queue.h"
#include "server/jobs/work_spec.h"
#include "server/lookup/judgement.h"
#include "server/lookup/tuning_index.h"

namespace convtune::lookup {

struct LookupRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  jobs::Demand demand;
  bool include_hints = false;
};

struct LookupResult {
  v1::BatchGetResult row;
  // While it is unchanged, an equal request gets an equal answer. Never unchanged() where the row
  // is a miss, or may change with time alone.
  ChangeStamp stamp = {};
};

struct LookupResponse {
  std::vector<LookupResult> results;  // in request order
  Environment environment;
};

inline constexpr size_t kMissReasons = v1::MissReason_ARRAYSIZE;  // numbers of them, 0 included

using LookupCallback = std::function<void(absl::StatusOr<LookupResponse>)>;

// An environment that a device has, or that the store alone knows.
struct ResolvedEnvironment {
  Environment environment;
  std::string text;
  // What people call it: its name, or its text where another device's environment has the name,
  // or no device has it.
  std::string word;
  std::shared_ptr<jobs::TuningQueue> queue;  // nullptr: no device has it
  // The text of the miss where the calling program fits no environment; empty: it
  // fits this one.
  std::string misfit;
};

// Thread-safe.
class Lookups {
 public:
  // The index, the clock and the jobs outlive it.
  Lookups(const TuningIndex* index, const Clock* clock, jobs::JobTable* jobs)
      : index_(index), clock_(clock), jobs_(jobs) {}

  // See Tuner::Lookup and Tuner::EndLookup.
  uint64_t Start(LookupRequest request, const ResolvedEnvironment& environment,
                 LookupCallback done);
  void End(uint64_t token, bool keep_work);

  // Makes the job, and queues what would give more than what is known (BetterWork).
  // ALREADY_EXISTS: the request's id is another's. REQUIRES: the environment has a queue.
  absl::StatusOr<v1::TuningJob> CreateJob(const ResolvedEnvironment& environment,
                                          const jobs::JobRequest& request);

  void CountHits(int64_t count) {
    problems_ += count;
    hits_ += count;
  }
  int64_t problems() const { return problems_.load(); }
  int64_t hits() const { return hits_.load(); }
  // Of look-ups as they came in, by MissReason.
  std::array<int64_t, kMissReasons> misses() const;
  int64_t waiting() const;

 private:
  struct Row {
    TuningKey key;
    LookupResult result;
    // The row of the same problem whose work answers this one, most often itself.
    std::optional<size_t> waits_for;
    std::optional<jobs::WorkKind> work;
    uint64_t subscription = 0;          // 0: the queue does not have the work yet
    std::optional<absl::Status> ended;  // how the work ended
  };
  // One caller. While pending_ has it, the last three members of its rows are guarded by mutex_;
  // afterwards they are of the thread that took it out.
  struct Pending {
    uint64_t token = 0;
    LookupRequest request;
    ResolvedEnvironment environment;
    absl::Time asked;
    LookupCallback done;
    std::vector<Row> rows;
    size_t open_work = 0;  // guarded as they are
  };

  LookupDecision DecideRow(const Pending& pending, size_t row) const;
  void AddHint(const Pending& pending, size_t row, v1::Miss* miss) const;
  // Queues the row's work.
  void Submit(const std::shared_ptr<Pending>& pending, size_t row);
  void OnWorkEnded(const std::shared_ptr<Pending>& pending, size_t row, const absl::Status& status);
  // Calls back with what is known once no work is open.
  void Complete(Pending* pending);
  // Calls back with the rows as they are.
  void Reply(Pending* pending);
  // REQUIRES: the row has work.
  static jobs::WorkSpec WorkOn(const Pending& pending, size_t row);

  const TuningIndex* const index_;
  const Clock* const clock_;
  jobs::JobTable* const jobs_;
  std::atomic<int64_t> problems_{0};
  std::atomic<int64_t> hits_{0};
  std::array<std::atomic<int64_t>, kMissReasons> misses_{};
  mutable Mutex mutex_;
  uint64_t next_token_ GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> pending_ GUARDED_BY(mutex_);
};

}  // namespace convtune::lookup
