// The daemon as a whole: RunDaemon opens the parts in order, and closes them.
//
// This folder is the daemon's main: settings, log, probe, start and end. It may
// include all of server but worker and fleet; nobody includes it.
#pragma once

#include "server/convtuned/flags.h"
#include "server/convtuned/signals.h"

namespace convtune::convtuned {

// Opens store and devices, then serves until a stop signal comes, and drains;
// or, with flags.once, tunes the lists and prints a summary to standard output.
// Returns the exit status: 0, or 1 with the reason in the log.
int RunDaemon(const Flags& flags, StopSignals* signals);

}  // namespace convtune::convtuned
