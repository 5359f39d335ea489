#include "proto/base/framing.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"

namespace convtune {
namespace {

using Header = std::array<unsigned char, 4>;

// A length is only an announcement until its bytes arrive: memory grows with
// what did arrive.
constexpr size_t kReadStep = size_t{1} << 20;

absl::Status ErrnoStatus(const char* what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == EPIPE || error == ECONNRESET) {
    return absl::OutOfRangeError(message);
  }
  return absl::InternalError(message);
}

// `events` is a pollfd's.
// NOLINTNEXTLINE(google-runtime-int)
absl::Status WaitFor(int fd, short events, absl::Time deadline) {
  while (true) {
    int timeout_ms = -1;
    if (deadline != absl::InfiniteFuture()) {
      const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
      timeout_ms = static_cast<int>(std::min<int64_t>(
          absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), INT_MAX));
    }
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, timeout_ms);
    if (ready > 0) {
      return absl::OkStatus();
    }
    if (ready < 0 && errno != EINTR) {
      return ErrnoStatus("poll", errno);
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError("no complete message before the deadline");
    }
  }
}

// Reads at most `size` bytes; 0 means that the peer closed.
absl::StatusOr<size_t> ReadSome(int fd, char* data, size_t size, absl::Time deadline) {
  while (true) {
    RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline));
    const ssize_t count = read(fd, data, size);
    if (count >= 0) {
      return static_cast<size_t>(count);
    }
    if (errno == ECONNRESET) {
      return 0;
    }
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return ErrnoStatus("read", errno);
    }
  }
}

// Sends from `parts`, without SIGPIPE where the descriptor is a socket.
ssize_t SendSome(int fd, iovec* parts, int count) {
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<size_t>(count);
  const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? writev(fd, parts, count) : sent;
}

}  // namespace

absl::Status WriteFrame(int fd, std::string_view message) {
  if (message.size() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", message.size(), " bytes; the limit is ", kMaxFrameBytes));
  }
  const uint32_t length = static_cast<uint32_t>(message.size());
  Header header;
  for (size_t i = 0; i < header.size(); ++i) {
    header[i] = static_cast<unsigned char>(length >> (8 * i));
  }
  iovec parts[2] = {{header.data(), header.size()},
                    {const_cast<char*>(message.data()), message.size()}};
  int first = 0;
  while (first < 2) {
    const ssize_t sent = SendSome(fd, parts + first, 2 - first);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        RETURN_IF_ERROR(WaitFor(fd, POLLOUT, absl::InfiniteFuture()));
      } else if (errno != EINTR) {
        return ErrnoStatus("write", errno);
      }
      continue;
    }
    size_t left = static_cast<size_t>(sent);
    while (first < 2 && left >= parts[first].iov_len) {
      left -= parts[first].iov_len;
      ++first;
    }
    if (first < 2) {
      parts[first].iov_base = static_cast<char*>(parts[first].iov_base) + left;
      parts[first].iov_len -= left;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFrame(int fd, absl::Time deadline) {
  Header header;
  size_t have = 0;
  while (have < header.size()) {
    ASSIGN_OR_RETURN(const size_t count, ReadSome(fd, reinterpret_cast<char*>(header.data()) + have,
                                                  header.size() - have, deadline));
    if (count == 0) {
      return have == 0 ? absl::OutOfRangeError("the peer closed the connection")
                       : absl::DataLossError("the peer closed the connection within a message");
    }
    have += count;
  }
  size_t length = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    length |= static_cast<size_t>(header[i]) << (8 * i);
  }
  if (length > kMaxFrameBytes) {
    return absl::DataLossError(
        absl::StrCat("message of ", length, " bytes announced; the limit is ", kMaxFrameBytes));
  }
  std::string message;
  while (message.size() < length) {
    const size_t old_size = message.size();
    const size_t step = std::min(length - old_size, kReadStep);
    message.resize(old_size + step);
    ASSIGN_OR_RETURN(const size_t count, ReadSome(fd, message.data() + old_size, step, deadline));
    if (count == 0) {
      return absl::DataLossError("the peer closed the connection within a message");
    }
    message.resize(old_size + count);
  }
  return message;
}

}  // namespace convtune
