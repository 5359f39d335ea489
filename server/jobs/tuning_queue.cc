#include "server/jobs/tuning_queue.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace convtune::jobs {
namespace {

// Zero stands for no limit.
bool LimitCovers(int64_t wide, int64_t narrow) {
  return wide == 0 || (narrow != 0 && wide >= narrow);
}

}  // namespace

bool Covers(const WorkSpec& wide, const WorkSpec& narrow) {
  if (wide.kind < narrow.kind) return false;
  if (wide.options.api != Api::kAny && wide.options.api != narrow.options.api) return false;
  if (narrow.kind != WorkKind::kTune) return true;
  return wide.options.search >= narrow.options.search &&
         wide.options.time_budget >= narrow.options.time_budget &&
         wide.options.wait_idle >= narrow.options.wait_idle &&
         wide.options.all_timings >= narrow.options.all_timings &&
         LimitCovers(wide.options.memory_budget_bytes, narrow.options.memory_budget_bytes) &&
         LimitCovers(wide.options.max_candidates, narrow.options.max_candidates);
}

TuningQueue::Place TuningQueue::PlaceOf(const WorkItem& item) {
  return {-static_cast<int>(item.priority), static_cast<int>(item.spec.kind), item.sequence};
}

std::shared_ptr<WorkItem> TuningQueue::FindJoinable(const WorkSpec& spec) {
  const auto found = by_problem_.find(spec.key.problem_text);
  if (found == by_problem_.end()) return nullptr;
  for (const auto& item : found->second) {
    if (Covers(item->spec, spec)) return item;
  }
  return nullptr;
}

void TuningQueue::Forget(const std::shared_ptr<WorkItem>& item) {
  const auto found = by_problem_.find(item->spec.key.problem_text);
  if (found == by_problem_.end()) return;
  std::erase(found->second, item);
  if (found->second.empty()) by_problem_.erase(found);
}

uint64_t TuningQueue::Submit(WorkSpec spec, Priority priority, Subscriber subscriber,
                             const std::function<bool()>& needed) {
  absl::Status refused;
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    std::shared_ptr<WorkItem> item = FindJoinable(spec);
    if (item == nullptr && !needed()) return 0;
    number = next_++;
    if (shut_) {
      refused = shut_status_;
    } else if (item == nullptr) {
      item = std::make_shared<WorkItem>(std::move(spec));
      item->priority = priority;
      item->sequence = number;
      queued_.emplace(PlaceOf(*item), item);
      by_problem_[item->spec.key.problem_text].push_back(item);
    } else {
      if (spec.force) item->force = true;
      // A queued item moves up; for a running one the key is not in the map.
      if (item->priority < priority && queued_.erase(PlaceOf(*item)) > 0) {
        item->priority = priority;
        queued_.emplace(PlaceOf(*item), item);
      }
    }
    if (refused.ok()) {
      item->subscribers.emplace_back(number, std::move(subscriber));
      by_subscriber_.emplace(number, item);
      changed_.SignalAll();
    }
  }
  // Not moved from then. NOLINTNEXTLINE(bugprone-use-after-move)
  if (!refused.ok()) subscriber.done({refused, true});
  return number;
}

void TuningQueue::Unsubscribe(uint64_t number) {
  Ended dropped;  // destroyed after the lock: it may own the caller's state
  MutexLock lock(mutex_);
  const auto found = by_subscriber_.find(number);
  if (found == by_subscriber_.end()) return;
  const std::shared_ptr<WorkItem> item = found->second;
  by_subscriber_.erase(found);
  const auto it = std::find_if(item->subscribers.begin(), item->subscribers.end(),
                               [number](const auto& entry) { return entry.first == number; });
  if (it != item->subscribers.end()) {
    dropped.push_back(std::move(*it));
    item->subscribers.erase(it);
  }
  if (!item->subscribers.empty()) return;
  Forget(item);
  queued_.erase(PlaceOf(*item));
  if (item->token != nullptr) item->token->Cancel();
}

std::shared_ptr<WorkItem> TuningQueue::Take(absl::Duration timeout, CancelToken* token) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mutex_);
  while (queued_.empty() && !shut_) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return nullptr;
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
  }
  if (shut_) return nullptr;
  std::shared_ptr<WorkItem> item = queued_.begin()->second;
  queued_.erase(queued_.begin());
  token->Reset();
  item->token = token;
  running_.push_back(item);
  return item;
}

void TuningQueue::Report(const std::shared_ptr<WorkItem>& item, const WorkProgress& progress) {
  Ended subscribers;
  {
    MutexLock lock(mutex_);
    subscribers = item->subscribers;
  }
  for (const auto& [number, subscriber] : subscribers) {
    if (subscriber.progress) subscriber.progress(progress);
  }
}

void TuningQueue::Finish(const std::shared_ptr<WorkItem>& item, const WorkResult& result) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    Forget(item);
    item->token = nullptr;
    std::erase(running_, item);
    ended = std::move(item->subscribers);
    item->subscribers.clear();
    for (const auto& [number, subscriber] : ended) by_subscriber_.erase(number);
    changed_.SignalAll();
  }
  for (const auto& [number, subscriber] : ended) subscriber.done(result);
}

void TuningQueue::PutBack(const std::shared_ptr<WorkItem>& item) {
  {
    MutexLock lock(mutex_);
    if (!shut_) {
      item->token = nullptr;
      std::erase(running_, item);
      if (!item->subscribers.empty()) queued_.emplace(PlaceOf(*item), item);
      changed_.SignalAll();
      return;
    }
  }
  Finish(item, {absl::CancelledError("the queue is shut")});
}

void TuningQueue::Shut(const absl::Status& status) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    shut_ = true;
    shut_status_ = status;
    for (auto& [place, item] : queued_) {
      Forget(item);
      for (auto& entry : item->subscribers) {
        by_subscriber_.erase(entry.first);
        ended.push_back(std::move(entry));
      }
      item->subscribers.clear();
    }
    queued_.clear();
    changed_.SignalAll();
  }
  for (const auto& [number, subscriber] : ended) subscriber.done({status, true});
}

bool TuningQueue::WaitIdle(absl::Time deadline) {
  MutexLock lock(mutex_);
  while (!running_.empty()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
  }
  return true;
}

bool TuningQueue::shut() const {
  MutexLock lock(mutex_);
  return shut_;
}

int64_t TuningQueue::depth() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(queued_.size());
}

absl::Status TuningQueue::CheckRoom(size_t more) const {
  MutexLock lock(mutex_);
  if (queued_.size() + more <= kMaxItems && by_subscriber_.size() + more <= kMaxSubscribers) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the queue is full: ", queued_.size(), " problems of at most ", kMaxItems, " and ",
      by_subscriber_.size(), " who wait of at most ", kMaxSubscribers, "; try again"));
}

bool TuningQueue::idle() const {
  MutexLock lock(mutex_);
  return queued_.empty() && running_.empty();
}

void TuningQueue::AddAvailable(int change) {
  MutexLock lock(mutex_);
  available_ += change;
  changed_.SignalAll();
}

int TuningQueue::available() const {
  MutexLock lock(mutex_);
  return available_;
}

}  // namespace convtune::jobs
