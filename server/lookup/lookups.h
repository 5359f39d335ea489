// Lookups answer callers, some of whom wait for a worker. A waiting caller is a
// record here and a subscriber in the queue, no thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/jobs/tuning_queue.h"
#include "server/lookup/judgement.h"
#include "server/lookup/tuning_index.h"

namespace convtune::lookup {

// An environment that a request named.
struct ResolvedEnvironment {
  Environment environment;
  std::string text;
  jobs::TuningQueue* queue = nullptr;  // nullptr: no device has it
  // The text of the miss where the calling program fits no environment; empty: it
  // fits this one.
  std::string misfit;
};

// Thread-safe.
class Lookups {
 public:
  // Queues a background job for the problems; gives its name.
  using CreateJobFunction = std::function<std::string(
      const ResolvedEnvironment&, std::vector<ConvProblem>, const jobs::Demand&)>;

  // Keeps work that is in the environment's queue there, behind all callers'.
  using KeepWorkFunction =
      std::function<void(const ResolvedEnvironment&, const std::vector<jobs::WorkSpec>&)>;

  // The index and the clock outlive it.
  Lookups(const TuningIndex* index, const Clock* clock, CreateJobFunction create_job,
          KeepWorkFunction keep_work);

  // See Tuner::Lookup and Tuner::EndLookup.
  uint64_t Start(LookupRequest request, const ResolvedEnvironment& environment,
                 LookupCallback done);
  void End(uint64_t token, bool keep_work);

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
  // A distinct key that the caller waits for.
  struct Wait {
    size_t row = 0;
    jobs::WorkKind kind = jobs::WorkKind::kTune;
    jobs::WorkResult result;
    uint64_t subscription = 0;
    bool ended = false;
  };
  struct Row {
    TuningKey key;
    LookupResult result;
    int wait = -1;  // index of its Wait, -1 if it has none
  };
  // One caller. `rows` is written before anything is submitted and once more
  // by whoever completes it.
  struct Pending {
    uint64_t token = 0;
    LookupRequest request;
    ResolvedEnvironment environment;
    absl::Time asked;
    LookupCallback done;
    std::vector<Row> rows;
    Mutex mutex;
    std::vector<Wait> waits GUARDED_BY(mutex);
    size_t open_waits GUARDED_BY(mutex) = 0;
    bool finished GUARDED_BY(mutex) = false;
  };

  LookupDecision DecideRow(const Pending& pending, size_t row) const;
  void AddHint(const Pending& pending, size_t row, v1::Miss* miss) const;
  void Submit(const std::shared_ptr<Pending>& pending, size_t wait, size_t row,
              jobs::WorkKind kind);
  void OnWorkEnded(const std::shared_ptr<Pending>& pending, size_t wait,
                   const jobs::WorkResult& result);
  void Complete(const std::shared_ptr<Pending>& pending);
  // Calls back with the rows as they are.
  void Reply(Pending* pending);

  const TuningIndex* const index_;
  const Clock* const clock_;
  const CreateJobFunction create_job_;
  const KeepWorkFunction keep_work_;
  std::atomic<int64_t> problems_{0};
  std::atomic<int64_t> hits_{0};
  std::array<std::atomic<int64_t>, kMissReasons> misses_{};
  mutable Mutex mutex_;
  uint64_t next_token_ GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Pending>> pending_ GUARDED_BY(mutex_);
};

}  // namespace convtune::lookup
