// StopSignals are SIGTERM and SIGINT, which end the daemon.
#pragma once

#include <csignal>

#include "absl/time/time.h"

namespace convtune::convtuned {

// Blocks SIGTERM and SIGINT for this thread and those it starts, and ignores
// SIGPIPE. Make it in main, before any other thread. Once one of the two has
// come, stopped() stays true. For one thread.
class StopSignals {
 public:
  StopSignals();

  // Waits for one of them; returns stopped().
  bool WaitFor(absl::Duration timeout);
  bool stopped() { return WaitFor(absl::ZeroDuration()); }

 private:
  sigset_t set_;
  bool stopped_ = false;
};

// Tells systemd the state ("READY=1", "STOPPING=1") where it asks for that by
// $NOTIFY_SOCKET.
void NotifySystemd(const char* state);

// How often systemd wants to hear "WATCHDOG=1": half of $WATCHDOG_USEC, if that
// is meant for this process; else InfiniteDuration().
absl::Duration WatchdogPeriod();

}  // namespace convtune::convtuned
