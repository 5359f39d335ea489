// Details of a daemon's error beyond its code and message.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/model/violation.h"

namespace convtune::client {

// Payload under which Client keeps the error's google.rpc.Status.
inline constexpr char kRpcDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

// The field violations of google.rpc.BadRequest; empty if there are none.
std::vector<Violation> ViolationsOf(const absl::Status& status);

// Of an error that refuses single problems of a request of `count` and nothing else: their places,
// and what is wrong, "problems[3].text: must be given"; empty for any other.
std::vector<std::pair<size_t, std::string>> RefusedProblems(const absl::Status& status,
                                                            size_t count);
// True for an error that a daemon answered with, of those that it explains:
// all UNAVAILABLE that are not the connection's.
bool IsFromDaemon(const absl::Status& status);

}  // namespace convtune::client
