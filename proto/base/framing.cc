#include "proto/base/framing.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/poll_until.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

constexpr size_t kHeaderBytes = 4;

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

// Appends `size` bytes to `data`, or as many as there are before the peer closes.
absl::Status ReadBytes(int fd, size_t size, SteadyTime deadline, std::string* data) {
  const size_t end = data->size() + size;
  pollfd entries[] = {{fd, POLLIN, 0}};
  while (data->size() < end) {
    const int ready = PollUntil(entries, deadline);
    if (ready < 0) return ErrnoStatus("poll", errno);
    if (ready == 0) return absl::DeadlineExceededError("no complete message before the deadline");
    const size_t have = data->size();
    data->resize(have + std::min(end - have, kReadStep));
    const ssize_t count = read(fd, data->data() + have, data->size() - have);
    const int error = errno;
    data->resize(have + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0 || (count < 0 && error == ECONNRESET)) break;
    if (count < 0 && error != EINTR) return ErrnoStatus("read", error);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFrame(int fd, std::string_view message) {
  if (message.size() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", message.size(), " bytes; the limit is ", kMaxFrameBytes));
  }
  std::string frame;
  frame.reserve(kHeaderBytes + message.size());
  AppendLittleEndian(message.size(), kHeaderBytes, &frame);
  frame.append(message);
  std::string_view left = frame;
  while (!left.empty()) {
    const ssize_t sent = send(fd, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      left.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EINTR) {
      return ErrnoStatus("write", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFrame(int fd, SteadyTime deadline) {
  std::string header;
  RETURN_IF_ERROR(ReadBytes(fd, kHeaderBytes, deadline, &header));
  if (header.empty()) return absl::OutOfRangeError("the peer closed the connection");
  const size_t length = ReadLittleEndian(header.data(), static_cast<int>(header.size()));
  if (header.size() == kHeaderBytes && length > kMaxFrameBytes) {
    return absl::DataLossError(
        absl::StrCat("message of ", length, " bytes announced; the limit is ", kMaxFrameBytes));
  }
  std::string message;
  if (header.size() == kHeaderBytes) RETURN_IF_ERROR(ReadBytes(fd, length, deadline, &message));
  if (header.size() < kHeaderBytes || message.size() < length) {
    return absl::DataLossError("the peer closed the connection within a message");
  }
  return message;
}

}  // namespace convtune
