// RunOnce is convtuned --once.
#pragma once

#include "server/convtuned/flags.h"
#include "server/convtuned/signals.h"
#include "server/tuner/tuner.h"

namespace convtune::convtuned {

// Answers every problem of flags.files in every environment that has a device
// (or in the only one that is known), doing flags.on_miss for what is missing,
// and prints a WarmSummary of each. Returns 0 if all are warm, else 1. A stop signal ends it
// early with 1.
int RunOnce(tuner::Tuner* tuner, const Flags& flags, StopSignals* signals);

}  // namespace convtune::convtuned
