// The version of how the worker runs, checks and times candidates.
#pragma once

namespace convtune {

// Raised by hand when candidates are run, checked or timed in another way:
// what a worker of a lower number is quarantined for is then tried again. Not
// the program's version, which builds during development share, and which has
// no order that a build from another branch would keep to.
inline constexpr int kCheckerVersion = 1;

}  // namespace convtune
