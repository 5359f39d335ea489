// A GpuTurn lets one of the devices of a GPU use it at a time. Devices share a GPU where each has
// another cuDNN: two workers that measure at once would time each other, and one that is merely
// there counts as another process.
#pragma once

#include <deque>

#include "absl/time/time.h"
#include "proto/base/cancel_token.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace convtune::devices {

// Thread-safe. A device is known by its address.
class GpuTurn {
 public:
  // Waits until the device has the GPU; who asked first is first. Returns at once if it has it
  // already. False: `cancel` came before.
  bool Await(const void* device, CancelToken* cancel);
  // True if the device has had the GPU for `had_for` at least, and others wait for it.
  bool Wanted(const void* device, absl::Duration had_for) const {
    MutexLock lock(mutex_);
    return holder_ == device && !waiting_.empty() && SteadyTime::Now() - since_ >= had_for;
  }
  // The device has ended its worker. Does nothing if it has not got the GPU.
  void GiveBack(const void* device) {
    MutexLock lock(mutex_);
    if (holder_ == device) holder_ = nullptr;
  }

 private:
  mutable Mutex mutex_;
  const void* holder_ GUARDED_BY(mutex_) = nullptr;
  SteadyTime since_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  std::deque<const void*> waiting_ GUARDED_BY(mutex_);
};

}  // namespace convtune::devices
