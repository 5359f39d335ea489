#include "server/rpc/services/work_queue.h"

#include <utility>

namespace convtune::rpc::services {

WorkQueue::WorkQueue(size_t capacity) : capacity_(capacity), thread_([this] { Run(); }) {}

WorkQueue::~WorkQueue() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

bool WorkQueue::Post(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (queue_.size() >= capacity_) {
      return false;
    }
    queue_.push_back(std::move(work));
  }
  changed_.Signal();
  return true;
}

void WorkQueue::Run() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) {
        changed_.Wait(mutex_);
      }
      if (queue_.empty()) {
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace convtune::rpc::services
