#include "server/jobs/tuning_queue.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

namespace convtune::jobs {
namespace {

// Zero stands for no limit.
bool LimitCovers(int64_t wide, int64_t narrow) {
  return wide == 0 || (narrow != 0 && wide >= narrow);
}

// True if work as `wide` gives all that work as `narrow` would.
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

WorkResult Drained() { return {absl::CancelledError("the daemon is draining")}; }

}  // namespace

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

void TuningQueue::Release(WorkItem* item, Ended* ended) {
  for (WorkItem::Waiter& waiter : item->waiters) {
    by_subscriber_.erase(waiter.number);
    ended->push_back(std::move(waiter));
  }
  item->waiters.clear();
}

void TuningQueue::SetPriority(const std::shared_ptr<WorkItem>& item, Priority priority) {
  const bool queued = queued_.erase(PositionOf(*item)) > 0;
  item->priority = priority;
  if (queued) queued_.emplace(PositionOf(*item), item);
}

void TuningQueue::DropExpired(Ended* ended) {
  // Who expires has the lowest priority, and that is at the end.
  const SteadyTime now = SteadyTime::Now();
  auto it = queued_.lower_bound({-static_cast<int>(Priority::kIdle), 0, 0});
  while (it != queued_.end()) {
    const std::shared_ptr<WorkItem> item = it->second;
    const bool expired = std::all_of(
        item->waiters.begin(), item->waiters.end(),
        [now](const WorkItem::Waiter& waiter) { return waiter.subscriber.expires <= now; });
    if (!expired) {
      ++it;
      continue;
    }
    it = queued_.erase(it);
    Forget(item);
    Release(item.get(), ended);
  }
}

uint64_t TuningQueue::Submit(WorkSpec spec, Priority priority, Subscriber subscriber,
                             const std::function<bool()>& needed) {
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    std::shared_ptr<WorkItem> item = FindJoinable(spec);
    if (item == nullptr && !needed()) return 0;
    if (item != nullptr && subscriber.expires < SteadyTime::InfiniteFuture()) {
      for (WorkItem::Waiter& waiter : item->waiters) {
        SteadyTime& expires = waiter.subscriber.expires;
        if (expires == SteadyTime::InfiniteFuture()) continue;
        expires = std::max(expires, subscriber.expires);
        return 0;
      }
    }
    number = next_++;
    if (!shut_) {
      if (item == nullptr) {
        item = std::make_shared<WorkItem>(std::move(spec));
        item->priority = priority;
        item->sequence = number;
        queued_.emplace(PositionOf(*item), item);
        by_problem_[item->spec.key.problem_text].push_back(item);
      } else {
        if (spec.force) item->force = true;
        if (item->priority < priority) SetPriority(item, priority);
      }
      item->waiters.push_back({number, priority, std::move(subscriber)});
      by_subscriber_.emplace(number, item);
      changed_.SignalAll();
      return number;
    }
  }
  subscriber.done(Drained());
  return number;
}

void TuningQueue::Unsubscribe(uint64_t number) {
  Ended dropped;  // destroyed after the lock: it may own the caller's state
  MutexLock lock(mutex_);
  const auto found = by_subscriber_.find(number);
  if (found == by_subscriber_.end()) return;
  const std::shared_ptr<WorkItem> item = found->second;
  by_subscriber_.erase(found);
  const auto it =
      std::find_if(item->waiters.begin(), item->waiters.end(),
                   [number](const WorkItem::Waiter& waiter) { return waiter.number == number; });
  if (it != item->waiters.end()) {
    dropped.push_back(std::move(*it));
    item->waiters.erase(it);
  }
  if (!item->waiters.empty()) {
    Priority priority = Priority::kIdle;
    for (const WorkItem::Waiter& waiter : item->waiters) {
      priority = std::max(priority, waiter.priority);
    }
    if (priority != item->priority) SetPriority(item, priority);
    return;
  }
  Forget(item);
  queued_.erase(PositionOf(*item));
  if (item->token != nullptr) item->token->Cancel();
}

std::shared_ptr<WorkItem> TuningQueue::Take(absl::Duration timeout, CancelToken* token) {
  const SteadyTime deadline = SteadyTime::Now() + timeout;
  while (true) {
    Ended expired;
    {
      MutexLock lock(mutex_);
      DropExpired(&expired);
      while (queued_.empty() && !shut_ && expired.empty()) {
        const absl::Duration left = deadline - SteadyTime::Now();
        if (left <= absl::ZeroDuration()) return nullptr;
        changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
      }
      if (expired.empty()) {
        if (shut_) return nullptr;
        std::shared_ptr<WorkItem> item = queued_.begin()->second;
        queued_.erase(queued_.begin());
        token->Reset();
        item->token = token;
        running_.push_back(item);
        return item;
      }
    }
    for (const WorkItem::Waiter& waiter : expired) {
      waiter.subscriber.done({absl::DeadlineExceededError(
          "dropped: its callers had gone, and it was not begun in time")});
    }
  }
}

void TuningQueue::Report(const std::shared_ptr<WorkItem>& item, const WorkProgress& progress) {
  Ended waiters;
  {
    MutexLock lock(mutex_);
    waiters = item->waiters;
  }
  for (const WorkItem::Waiter& waiter : waiters) {
    if (waiter.subscriber.progress) waiter.subscriber.progress(progress);
  }
}

void TuningQueue::Finish(const std::shared_ptr<WorkItem>& item, const WorkResult& result) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    Forget(item);
    item->token = nullptr;
    std::erase(running_, item);
    Release(item.get(), &ended);
    changed_.SignalAll();
  }
  for (const WorkItem::Waiter& waiter : ended) waiter.subscriber.done(result);
}

void TuningQueue::PutBack(const std::shared_ptr<WorkItem>& item) {
  {
    MutexLock lock(mutex_);
    if (!shut_) {
      item->token = nullptr;
      std::erase(running_, item);
      if (!item->waiters.empty()) queued_.emplace(PositionOf(*item), item);
      changed_.SignalAll();
      return;
    }
  }
  Finish(item, Drained());
}

void TuningQueue::Shut() {
  Ended ended;
  {
    MutexLock lock(mutex_);
    shut_ = true;
    for (auto& [position, item] : queued_) {
      Forget(item);
      Release(item.get(), &ended);
    }
    queued_.clear();
    changed_.SignalAll();
  }
  for (const WorkItem::Waiter& waiter : ended) waiter.subscriber.done(Drained());
}

void TuningQueue::WaitIdle(SteadyTime deadline) {
  MutexLock lock(mutex_);
  while (!running_.empty() && SteadyTime::Now() < deadline) {
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(deadline - SteadyTime::Now()));
  }
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

}  // namespace convtune::jobs
