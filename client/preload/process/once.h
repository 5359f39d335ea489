#pragma once

#include <atomic>

#include "client/preload/process/mutex.h"

namespace convtune::preload::process {

// A value that is found out with the first success and kept for good. Several
// threads may find it out at a time, with the same result: so nothing is
// locked while they do, as the loader may be at work. Constant-initialised.
template <typename T>
class Once {
 public:
  // `find(T*)` says whether it succeeded; null until one does.
  template <typename Find>
  const T* Get(const Find& find) {
    if (there_.load(std::memory_order_acquire)) {
      return &value_;
    }
    T found = {};
    if (!find(&found)) {
      return nullptr;
    }
    const Locked locked(&mutex_);
    if (!there_.load(std::memory_order_relaxed)) {
      value_ = found;
      there_.store(true, std::memory_order_release);
    }
    return &value_;
  }

 private:
  std::atomic<bool> there_{false};
  Mutex mutex_;
  T value_ = {};
};

}  // namespace convtune::preload::process
