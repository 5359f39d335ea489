// A WorkQueue is a thread for handlers that wait for the disk.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "proto/base/mutex.h"

namespace convtune::rpc::services {

// Runs work in order on one thread of its own, so that gRPC's few threads never
// wait for the disk. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(size_t capacity);
  // Runs what is queued, then ends the thread.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns false, and does nothing, if `capacity` pieces of work wait already.
  // `work` must not throw.
  [[nodiscard]] bool Post(std::function<void()> work);

 private:
  void Run();

  const size_t capacity_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convtune::rpc::services
