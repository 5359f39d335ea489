#include "server/devices/gpu_turn.h"

#include <algorithm>

namespace convtune::devices {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(10);

}  // namespace

bool GpuTurn::Await(const void* device, CancelToken* cancel) {
  {
    MutexLock lock(mutex_);
    if (holder_ == device) return true;
    waiting_.push_back(device);
  }
  while (true) {
    const bool cancelled = cancel->cancelled();
    {
      MutexLock lock(mutex_);
      if (cancelled || (holder_ == nullptr && waiting_.front() == device)) {
        waiting_.erase(std::find(waiting_.begin(), waiting_.end(), device));
        if (cancelled) return false;
        holder_ = device;
        since_ = SteadyTime::Now();
        return true;
      }
    }
    cancel->WaitFor(kLook);
  }
}

}  // namespace convtune::devices
