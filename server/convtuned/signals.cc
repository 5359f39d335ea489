#include "server/convtuned/signals.h"

#include <pthread.h>

#include <algorithm>

#include "proto/base/clock.h"

namespace convtune::convtuned {

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool StopSignals::WaitFor(absl::Duration timeout) {
  const SteadyTime end = SteadyTime::Now() + timeout;
  while (!stopped_) {
    const timespec time = absl::ToTimespec(std::max(end - SteadyTime::Now(), absl::ZeroDuration()));
    const int number = sigtimedwait(&set_, nullptr, &time);
    if (number != SIGHUP) {
      stopped_ = number > 0;
      break;
    }
    if (reload_) reload_();
  }
  return stopped_;
}

}  // namespace convtune::convtuned
