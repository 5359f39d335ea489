// A WorkQueue is a thread for handlers that wait for the disk.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "proto/base/mutex.h"

namespace convtune::rpc::services {

// Runs work in order on one thread of its own, so that gRPC's few threads never
// wait for the disk. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(size_t capacity) : capacity_(capacity), thread_([this] { Run(); }) {}
  // Runs what is queued, then ends the thread.
  ~WorkQueue() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.SignalAll();
    thread_.join();
  }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns false, and does nothing, if `capacity` pieces of work wait already.
  // `work` must not throw.
  [[nodiscard]] bool Post(std::function<void()> work) {
    MutexLock lock(mutex_);
    if (queue_.size() >= capacity_) return false;
    queue_.push_back(std::move(work));
    changed_.Signal();
    return true;
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  const size_t capacity_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convtune::rpc::services
