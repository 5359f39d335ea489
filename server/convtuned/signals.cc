#include "server/convtuned/signals.h"

#include <pthread.h>

#include <algorithm>

#include "absl/time/clock.h"

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
  const absl::Time end = absl::Now() + timeout;
  while (!stopped_) {
    const timespec time = absl::ToTimespec(std::max(end - absl::Now(), absl::ZeroDuration()));
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
