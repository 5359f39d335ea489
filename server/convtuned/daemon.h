// The daemon as a whole: what is opened, in which order, and how it ends.
#pragma once

#include "server/convtuned/flags.h"
#include "server/convtuned/signals.h"

namespace convtune::daemon {

// Opens store and devices, then serves until a stop signal comes, and drains;
// or, with flags.once, tunes the lists and prints a summary to standard output.
// Returns the exit status: 0, or 1 with the reason in the log.
int RunDaemon(const Flags& flags, StopSignals* signals);

}  // namespace convtune::daemon
