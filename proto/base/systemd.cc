#include "proto/base/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"

namespace convtune {

void NotifySystemd(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || (path[0] != '/' && path[0] != '@') ||
      std::strlen(path) >= sizeof(address.sun_path)) {
    return;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path));
  if (path[0] == '@') {
    address.sun_path[0] = '\0';  // an abstract name
  }
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return;
  }
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  sendto(fd, state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
         length);
  close(fd);
}

absl::Duration WatchdogPeriod() {
  const char* usec = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  int64_t microseconds = 0;
  int64_t wanted_pid = getpid();
  if (usec == nullptr || !absl::SimpleAtoi(usec, &microseconds) || microseconds <= 0 ||
      (pid != nullptr && (!absl::SimpleAtoi(pid, &wanted_pid) || wanted_pid != getpid()))) {
    return absl::InfiniteDuration();
  }
  return absl::Microseconds(microseconds) / 2;
}

void TellWatchdog() {
  if (WatchdogPeriod() < absl::InfiniteDuration()) NotifySystemd("WATCHDOG=1");
}

}  // namespace convtune
