#include "proto/base/cancel_token.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "proto/base/clock.h"

namespace convtune {
namespace {

// Rounded up, so that a wait never ends before its time.
int PollMillis(absl::Duration duration) {
  const int64_t ms = absl::ToInt64Milliseconds(duration + absl::Microseconds(999));
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

}  // namespace

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
  const SteadyTime deadline = SteadyTime::Now() + timeout;
  while (!cancelled()) {
    const absl::Duration left = deadline - SteadyTime::Now();
    if (left <= absl::ZeroDuration()) break;
    pollfd entry = {fd_.get(), POLLIN, 0};
    poll(&entry, 1, PollMillis(left));
  }
  return cancelled();
}

bool WaitReadable(int fd, const CancelToken& token, SteadyTime deadline) {
  while (!token.cancelled()) {
    pollfd entries[2] = {{fd, POLLIN, 0}, {token.fd(), POLLIN, 0}};
    const int ready = poll(entries, 2, PollMillis(deadline - SteadyTime::Now()));
    if (ready > 0 && entries[1].revents != 0) return false;
    if (ready > 0 && entries[0].revents != 0) return true;
    if (SteadyTime::Now() >= deadline) return false;
  }
  return false;
}

}  // namespace convtune
