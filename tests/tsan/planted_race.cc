// A race that ThreadSanitizer must report: two threads count without the mutex
// that guards the counter. It shows that a silent run of the other tests means
// something, although absl and gRPC are not instrumented.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "proto/base/mutex.h"

namespace convtune {
namespace {

class Counter {
 public:
  void Add() NO_THREAD_SAFETY_ANALYSIS { ++value_; }

  int value() {
    MutexLock lock(mutex_);
    return value_;
  }

 private:
  Mutex mutex_;
  int value_ GUARDED_BY(mutex_) = 0;
};

int Main() {
  // To where the test looks, also when log_path sends reports to files.
  __sanitizer_set_report_fd(reinterpret_cast<void*>(STDERR_FILENO));
  Counter counter;
  // The second thread counts when the first has: of two accesses at the very same moment
  // ThreadSanitizer may see none. Relaxed, so that the wait orders nothing else.
  std::atomic<bool> counted = false;
  std::thread first([&] {
    for (int i = 0; i < 1000; ++i) counter.Add();
    counted.store(true, std::memory_order_relaxed);
  });
  std::thread second([&] {
    while (!counted.load(std::memory_order_relaxed)) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) counter.Add();
  });
  first.join();
  second.join();
  std::printf("%d\n", counter.value());
  return 0;
}

}  // namespace
}  // namespace convtune

int main() { return convtune::Main(); }
