// A ListenAddress is an Address, and the role of whoever connects to it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/address.h"
#include "server/rpc/http2/access.h"

namespace convtune::rpc::http2 {

// Value type.
struct ListenAddress : Address {
  Role role = Role::kAdmin;  // of whoever can connect to a unix socket

  // Reads "ROLE=unix:PATH", or what Address::Parse reads; port 0 is any free one.
  // INVALID_ARGUMENT names the rule.
  static absl::StatusOr<ListenAddress> Parse(const std::string& text);
};

// Makes the way free for a socket at `path`: makes its folder if that is
// missing (for this user alone; for everybody to enter if this user is root),
// and removes a socket that nobody answers on. ALREADY_EXISTS if somebody does;
// FAILED_PRECONDITION if something else is there, or if the folder belongs to another
// user and lies in one that all share (sticky, as /tmp).
absl::Status PrepareSocketPath(const std::string& path);

}  // namespace convtune::rpc::http2
