// An Address is the place where a daemon listens.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace convtune {

// Value type.
struct Address {
  bool unix_socket = false;
  std::string target;     // the socket's path, or HOST:PORT
  std::string host = "";  // of HOST:PORT, without brackets
  std::string port = "";

  // Reads "unix:PATH" (a path of 1 to 107 bytes) or "HOST:PORT" (port `least_port` to 65535; an
  // IPv6 host in brackets). INVALID_ARGUMENT names `field` and the rule.
  static absl::StatusOr<Address> Parse(const std::string& text,
                                       const std::string& field = "address", int least_port = 1);
  // The form that Parse reads, and that gRPC takes.
  std::string ToText() const;
};

}  // namespace convtune
