// Version of the protocol in worker.proto, for both of its sides.
#pragma once

namespace convtune {

// Raised by a change that the other side would misread.
inline constexpr int kWorkerProtocolMajor = 1;
// Raised by any other change of the messages.
inline constexpr int kWorkerProtocolMinor = 4;

// Raised by hand when candidates are run, checked or timed in another way:
// what a worker of a lower number is quarantined for is then tried again. Not
// the program's version, which builds during development share, and which has
// no order that a build from another branch would keep to.
inline constexpr int kCheckerVersion = 1;

}  // namespace convtune
