// A TuningQueue has the work that waits for the devices of one environment.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/cancel_token.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/jobs/work_spec.h"

namespace convtune::jobs {

// A Subscriber waits for an item. The functions are called without locks held, from a
// device's thread or the one that cancels; `done` at most once, and perhaps
// while Unsubscribe returns.
struct Subscriber {
  std::function<void(const WorkResult&)> done;
  std::function<void(const WorkProgress&)> progress = {};  // may be empty
  // Queued work that nobody waits for any longer is dropped: DEADLINE_EXCEEDED.
  SteadyTime expires = SteadyTime::InfiniteFuture();
};

// One piece of work. Its fields other than spec and force are the queue's.
struct WorkItem {
  explicit WorkItem(WorkSpec s) : spec(std::move(s)), force(spec.force) {}

  const WorkSpec spec;
  std::atomic<bool> force;
  Priority priority = Priority::kBackground;
  uint64_t sequence = 0;
  CancelToken* token = nullptr;  // of the device that runs it
  struct Waiter {
    uint64_t number = 0;
    Priority priority = Priority::kBackground;
    Subscriber subscriber;
  };
  std::vector<Waiter> waiters;
};

// Thread-safe. There is one item per problem however many ask for it: who asks
// for no more than a queued or running item will give joins that item.
class TuningQueue {
 public:
  // Limits of what may wait at once, so that memory is bounded whatever the number of callers.
  static constexpr size_t kMaxItems = 50'000;
  static constexpr size_t kMaxSubscribers = 400'000;

  // Adds a subscriber and returns its number; never 0. If no item can be
  // joined, asks `needed` under the queue's lock, and if it says no adds
  // nothing and returns 0: results are published before their item leaves the
  // queue, so work that ended in between is not done again. A second
  // subscriber that expires is not added to an item, and 0 is returned: the first one then
  // expires with the later of the two.
  uint64_t Submit(WorkSpec spec, Priority priority, Subscriber subscriber,
                  const std::function<bool()>& needed);
  // The subscriber wants it no longer. Work that nobody wants is dropped, or
  // cancelled if it runs; what others want has their priority. Unknown numbers are
  // ignored.
  void Unsubscribe(uint64_t number);

  // The next item: who is waited for first, then short work, then the oldest.
  // nullptr after `timeout`, or when the queue is shut. `token` is cancelled
  // when nobody wants the item any more. Call Finish or PutBack for each item taken.
  std::shared_ptr<WorkItem> Take(absl::Duration timeout, CancelToken* token);
  void Report(const std::shared_ptr<WorkItem>& item, const WorkProgress& progress);
  void Finish(const std::shared_ptr<WorkItem>& item, const WorkResult& result);
  // Instead of Finish: leaves the item to another device.
  void PutBack(const std::shared_ptr<WorkItem>& item);

  // Ends what is queued as CANCELLED; Take gives nothing from now on.
  void Shut();
  // Waits until nothing runs, or `deadline` comes.
  void WaitIdle(SteadyTime deadline);
  bool shut() const {
    MutexLock lock(mutex_);
    return shut_;
  }
  int64_t depth() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(queued_.size());
  }
  // RESOURCE_EXHAUSTED if `more` items and as many subscribers would be too many.
  // Submit does not ask: whoever lets callers in does.
  absl::Status CheckRoom(size_t more) const;
  // Nothing is queued and nothing runs.
  bool idle() const {
    MutexLock lock(mutex_);
    return queued_.empty() && running_.empty();
  }
  // Devices that can work at present.
  void AddAvailable(int change) {
    MutexLock lock(mutex_);
    available_ += change;
    changed_.SignalAll();
  }
  int available() const {
    MutexLock lock(mutex_);
    return available_;
  }

 private:
  using Position = std::tuple<int, int, uint64_t>;  // priority, kind, sequence: lowest first
  using Ended = std::vector<WorkItem::Waiter>;

  static Position PositionOf(const WorkItem& item) {
    return {-static_cast<int>(item.priority), static_cast<int>(item.spec.kind), item.sequence};
  }
  std::shared_ptr<WorkItem> FindJoinable(const WorkSpec& spec) REQUIRES(mutex_);
  void Forget(const std::shared_ptr<WorkItem>& item) REQUIRES(mutex_);
  // Moves the item's waiters to `ended`.
  void Release(WorkItem* item, Ended* ended) REQUIRES(mutex_);
  // A queued item moves; for a running one the key is not in the map.
  void SetPriority(const std::shared_ptr<WorkItem>& item, Priority priority) REQUIRES(mutex_);
  void DropExpired(Ended* ended) REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  bool shut_ GUARDED_BY(mutex_) = false;
  uint64_t next_ GUARDED_BY(mutex_) = 1;
  int available_ GUARDED_BY(mutex_) = 0;
  std::map<Position, std::shared_ptr<WorkItem>> queued_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<WorkItem>> running_ GUARDED_BY(mutex_);
  // Joinable items by problem text.
  std::unordered_map<std::string, std::vector<std::shared_ptr<WorkItem>>> by_problem_
      GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<WorkItem>> by_subscriber_ GUARDED_BY(mutex_);
};

}  // namespace convtune::jobs
