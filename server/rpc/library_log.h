// Log lines of gRPC and protobuf, in the daemon's log.
#pragma once

namespace convtune::rpc {

// Sends both libraries' own messages, which they else write to standard error
// in forms of their own, to our log. Nothing that they report
// stops the daemon, so their errors are warnings here. Call it before their
// first use.
void CaptureLibraryLogs();

}  // namespace convtune::rpc
