// BindSocket makes a unix socket at a path.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "proto/base/unique_fd.h"

namespace convtune {

// Nobody listens there yet, and never again once it is closed.
inline UniqueFd BindSocket(const std::string& path) {
  UniqueFd end(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
      << path;
  return end;
}

}  // namespace convtune
