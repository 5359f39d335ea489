#include "proto/base/cancel_token.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "proto/base/poll_until.h"

namespace convtune {

absl::StatusOr<std::unique_ptr<CancelToken>> CancelToken::Create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  return std::unique_ptr<CancelToken>(new CancelToken(std::move(fd)));
}

void CancelToken::Cancel() {
  cancelled_ = true;
  const uint64_t one = 1;
  // Fails only if the counter is full, and then the descriptor is readable.
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof(one));
}

void CancelToken::Reset() {
  cancelled_ = false;
  uint64_t count = 0;
  // Fails if nothing was written, which is what is wanted.
  [[maybe_unused]] const ssize_t got = read(fd_.get(), &count, sizeof(count));
}

bool CancelToken::WaitFor(absl::Duration timeout) const {
  pollfd entries[] = {{fd_.get(), POLLIN, 0}};
  if (!cancelled()) PollUntil(entries, SteadyTime::Now() + timeout);
  return cancelled();
}

bool WaitReadable(int fd, const CancelToken& token, SteadyTime deadline) {
  pollfd entries[] = {{fd, POLLIN, 0}, {token.fd(), POLLIN, 0}};
  return !token.cancelled() && PollUntil(entries, deadline) > 0 && entries[1].revents == 0;
}

}  // namespace convtune
