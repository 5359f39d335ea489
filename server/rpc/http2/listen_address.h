// A ListenAddress is a unix socket's path, or a host and a port.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/http2/access.h"

namespace convtune::rpc::http2 {

// Value type.
struct ListenAddress {
  bool unix_socket = false;
  std::string target;        // path of the socket, or HOST:PORT
  std::string host, port;    // of HOST:PORT, without brackets
  Role role = Role::kAdmin;  // of whoever can connect to the socket

  // "unix:PATH", "ROLE=unix:PATH" or "HOST:PORT"; an IPv6 host stands in brackets.
  // INVALID_ARGUMENT for anything else, and for a path that does not fit a
  // socket's name (107 bytes).
  static absl::StatusOr<ListenAddress> Parse(const std::string& text);
  // The address as gRPC's clients take it.
  std::string ToText() const;
};

// Makes the way free for a socket at `path`: makes its folder if that is
// missing (for this user alone; for everybody to enter if this user is root),
// and removes a socket that nobody answers on. ALREADY_EXISTS if somebody does;
// FAILED_PRECONDITION if something else is there, or if the folder belongs to another
// user and lies in one that all share (sticky, as /tmp).
absl::Status PrepareSocketPath(const std::string& path);

}  // namespace convtune::rpc::http2
