// A DeviceRunner is one device: its thread, its worker process, and what is done when the worker
// dies.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/tuning.pb.h"
#include "proto/base/cancel_token.h"
#include "proto/base/clock.h"
#include "proto/base/histogram.h"
#include "proto/base/mutex.h"
#include "proto/model/tuning/conditions.h"
#include "proto/worker_client/worker_client.h"
#include "server/commit/committer.h"
#include "server/devices/device.h"
#include "server/devices/gpu_health.h"
#include "server/devices/gpu_turn.h"
#include "server/devices/self_check_cache.h"
#include "server/jobs/tuning_queue.h"
#include "server/tuning/tuning_runner.h"

namespace convtune::devices {

// Thread-safe.
class DeviceRunner {
 public:
  struct Options {
    DeviceSpec device;
    jobs::TuningQueue* queue = nullptr;      // of the device's environment; outlives it
    commit::Committer* committer = nullptr;  // outlives it
    const Clock* clock = nullptr;            // outlives it
    GpuTurn* turn = nullptr;                 // outlives it
    GpuHealth* gpu_health = nullptr;         // outlives it
    SelfCheckCache* self_checks = nullptr;   // outlives it
    WorkerLimits limits;
  };

  // Starts the thread; the worker is started when there is work.
  static absl::StatusOr<std::unique_ptr<DeviceRunner>> Create(Options options);
  // The queue must be shut.
  ~DeviceRunner() { Join(); }

  v1::Device Status() const;
  // Items that a worker was asked for.
  int64_t requests() const { return requests_.load(); }
  // Adds what its work came to and took, outcome by outcome.
  void AddWork(std::vector<WorkStats>* work) const {
    work->push_back({options_.device.name, "succeeded", succeeded_.Snapshot()});
    work->push_back({options_.device.name, "failed", failed_.Snapshot()});
    work->push_back({options_.device.name, "cancelled", cancelled_.Snapshot()});
  }
  // Ends at once whatever the device does; the queue must be shut.
  void Cancel() { token_->Cancel(); }
  // Ends the worker and the thread once the running item is through; the queue
  // must be shut.
  void Join();

 private:
  // The rest of an item once it is answered.
  struct Late {
    std::map<int, CandidateId> candidates;  // that the worker listed, by its index
    std::vector<CandidateId> suspects;      // that there was no time to try alone
  };

  // Kills from outside after which a candidate, or an item, is tried again.
  static constexpr int kOutsideKills = 5;
  // Failed starts after which an item is given up.
  static constexpr int kStartAttempts = 3;
  // Steps of a self-check that may be lost: with more, this daemon starts no worker any more.
  static constexpr int kMostStepsLost = 2;
  // Deaths without a candidate to blame, after which an item is tried again.
  static constexpr int kUnexplainedDeaths = 2;

  DeviceRunner(Options options, std::unique_ptr<CancelToken> token);

  void Loop();
  void Idle();
  // UNAVAILABLE if the GPU is lost.
  absl::Status CheckHealth() const { return options_.gpu_health->Check(options_.device.name); }
  // Ends a worker that must not be used any more: the GPU is lost, or an
  // application's Xid was reported of it.
  void DropStaleWorker();
  // `why` ends the sentence of the log.
  void EndWorker(const char* why);
  // Ends the worker where another device waits for the GPU: at once without work, else once it
  // has had the GPU for kTurn.
  void GiveWay();
  // True if it is better to leave the queue to other devices.
  bool StandsBack();
  // Does the item's work, with as many workers as it takes, and commits its result. `late` is what
  // is left to do once the item is answered.
  jobs::WorkResult Execute(const std::shared_ptr<jobs::WorkItem>& item, Late* late);
  // Waits for a worker that the item left at work, and finds out what workers
  // hung on, or died of, that were lost too late. Gives way to other work.
  void FinishLate(const jobs::WorkSpec& spec, Late late);
  // False if the worker is at it still, and it was ended to give way.
  bool FinishPending(const std::function<bool()>& gives_way, Late* late);
  // Waits for the GPU, and sees to it that client_ is there and alive. UNAVAILABLE or CANCELLED.
  absl::Status EnsureWorker();
  // Finds out whether a worker was lost for the candidate that it was touching: quarantines the
  // suspect, and returns its entry, if it takes a worker down alone as well. Errors:
  // DEADLINE_EXCEEDED if `end` comes before, or `gives_way` (see WorkerClient::SetEnd)
  // says so, and EnsureWorker's.
  absl::StatusOr<std::optional<QuarantineEntry>> Judge(const jobs::WorkSpec& spec,
                                                       const CandidateId& suspect, SteadyTime end,
                                                       const std::function<bool()>& gives_way);
  // Fills in key and time.
  void Quarantine(const TuningKey& key, QuarantineEntry entry);
  // Lifts quarantines that did not hold for this tuning, of candidates that it
  // tried and did not quarantine anew. `client` made the tuning.
  void LiftQuarantines(const Tuning& tuning, absl::Duration budget, const WorkerClient& client);
  // Takes note of the loss of client_ and drops it.
  WorkerLoss TakeLoss();
  void CountDeath() {
    MutexLock lock(mutex_);
    status_.set_worker_deaths(status_.worker_deaths() + 1);
  }
  // Starts no worker until the pause is over. `longer`: the pause after this one is twice as long.
  void PauseBeforeStart(bool longer) {
    not_before_ = SteadyTime::Now() + backoff_;
    if (longer) backoff_ = std::min(backoff_ * 2, options_.limits.backoff_max);
  }
  // Takes note of what the new worker found.
  void TakeSelfCheck();
  void SetState(v1::DeviceState state, const std::string& reason = "") {
    MutexLock lock(mutex_);
    status_.set_state(state);
    status_.set_reason(reason);
    status_.set_worker_pid(client_ != nullptr ? client_->pid() : 0);
  }
  void SetAvailable(bool available) {
    if (available_ == available) return;
    available_ = available;
    options_.queue->AddAvailable(available ? 1 : -1);
  }
  const Options options_;
  const std::string environment_text_;
  const std::string self_check_key_;
  const std::unique_ptr<CancelToken> token_;
  std::atomic<int64_t> requests_{0};
  Histogram succeeded_;
  Histogram failed_;
  Histogram cancelled_;

  // The thread's own.
  std::unique_ptr<WorkerClient> client_;
  absl::Duration backoff_;
  SteadyTime not_before_ = SteadyTime::InfinitePast();
  SteadyTime idle_since_ = SteadyTime::InfinitePast();
  bool available_ = true;
  std::string start_failure_;  // the last one

  mutable Mutex mutex_;
  v1::Device status_ GUARDED_BY(mutex_);  // without self_check
  // Of the last worker; before the first one is started, that of the worker of an earlier
  // daemon, as far as it was kept.
  SelfCheck self_check_ GUARDED_BY(mutex_);
  std::thread thread_;
};

// The entry, without key and time, of a candidate that a worker of this checker version was
// lost for, in a tuning with this budget.
QuarantineEntry Blame(const CandidateId& candidate, const WorkerLoss& loss, absl::Duration budget,
                      int checker_version);

}  // namespace convtune::devices
