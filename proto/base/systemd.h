// Functions that tell systemd how this process is. Nothing is sent where systemd
// does not ask for it. Thread-safe.
#pragma once

#include "absl/time/time.h"

namespace convtune {

// Tells systemd the state ("READY=1", "STOPPING=1") where it asks for that by
// $NOTIFY_SOCKET.
void NotifySystemd(const char* state);

// Returns the period at which systemd is to be sent "WATCHDOG=1": half of
// $WATCHDOG_USEC if that is meant for this process, else InfiniteDuration().
absl::Duration WatchdogPeriod();

// Says "WATCHDOG=1" where systemd wants to hear it.
void TellWatchdog();

}  // namespace convtune
