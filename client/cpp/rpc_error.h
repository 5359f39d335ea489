// Details of a daemon's error beyond its code and message.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model/violation.h"

namespace convtune {

// Payload under which Client keeps the error's google.rpc.Status.
inline constexpr char kRpcDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

// The field violations of google.rpc.BadRequest; empty if there are none.
std::vector<Violation> ViolationsOf(const absl::Status& status);

// True for an error that a daemon answered with, of those that it explains:
// all UNAVAILABLE that are not the connection's.
bool IsFromDaemon(const absl::Status& status);

}  // namespace convtune
