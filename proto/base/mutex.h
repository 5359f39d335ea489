// std::mutex with Clang's thread-safety annotations. absl::Mutex is not used:
// distributions ship it without TSan instrumentation, so TSan reports races
// that do not exist.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Defines some of the names below, in whatever absl header comes first.
#include "absl/base/thread_annotations.h"

#if defined(__clang__)
#define CONVTUNE_TSA(x) __attribute__((x))
#else
#define CONVTUNE_TSA(x)
#endif

#undef GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS
#define CAPABILITY(x) CONVTUNE_TSA(capability(x))
#define SCOPED_CAPABILITY CONVTUNE_TSA(scoped_lockable)
#define GUARDED_BY(x) CONVTUNE_TSA(guarded_by(x))
#define REQUIRES(...) CONVTUNE_TSA(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) CONVTUNE_TSA(acquire_capability(__VA_ARGS__))
#define RELEASE(...) CONVTUNE_TSA(release_capability(__VA_ARGS__))
#define EXCLUDES(...) CONVTUNE_TSA(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS CONVTUNE_TSA(no_thread_safety_analysis)

namespace convtune {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits may wake without a signal: callers loop over their condition.
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }

  // Returns false if the time ran out.
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto status = cv_.wait_for(lock, timeout);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace convtune
