// RunOnce is convtuned --once.
#pragma once

#include "server/convtuned/flags.h"
#include "server/convtuned/signals.h"
#include "server/tuner/tuner.h"

namespace convtune::convtuned {

// Answers every problem of flags.files in every environment that has a device
// (or in the only one that is known), doing flags.on_miss for what is missing,
// and prints a summary. Returns 0 if every row could be read and has an answer
// that was kept, else 1. A stop signal ends it early with 1.
int RunOnce(tuner::Tuner* tuner, const Flags& flags, StopSignals* signals);

}  // namespace convtune::convtuned
