// StopSignals are SIGTERM and SIGINT, which end the daemon, and SIGHUP, which does
// not.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune::convtuned {

// Blocks SIGTERM, SIGINT and SIGHUP for this thread and those it starts, and ignores
// SIGPIPE and SIGXFSZ: what cannot be written has its error. Make it in main, before any other
// thread. Once one of the first two has come, stopped() stays true. For one thread.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
  }

  // Sets the function that WaitFor calls on SIGHUP; empty: none.
  void OnHangup(std::function<void()> reload) { reload_ = std::move(reload); }

  // Waits for SIGTERM or SIGINT; returns stopped().
  bool WaitFor(absl::Duration timeout) {
    const SteadyTime end = SteadyTime::Now() + timeout;
    while (!stopped_) {
      const timespec time =
          absl::ToTimespec(std::max(end - SteadyTime::Now(), absl::ZeroDuration()));
      const int number = sigtimedwait(&set_, nullptr, &time);
      if (number != SIGHUP) {
        stopped_ = number > 0;
        break;
      }
      if (reload_) reload_();
    }
    return stopped_;
  }
  bool stopped() { return WaitFor(absl::ZeroDuration()); }

 private:
  sigset_t set_;
  std::function<void()> reload_;
  bool stopped_ = false;
};

}  // namespace convtune::convtuned
