// Version of the protocol in worker.proto, for both of its sides.
#pragma once

namespace convtune {

// Raised by a change that the other side would misread.
inline constexpr int kWorkerProtocolMajor = 1;
// Raised by any other change of the messages.
inline constexpr int kWorkerProtocolMinor = 4;

}  // namespace convtune
