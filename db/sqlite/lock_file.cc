#include "db/sqlite/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "db/sqlite/file_util.h"
#include "proto/base/strings.h"

namespace convtune::db::sqlite {
namespace {

constexpr int kAttempts = 11;
constexpr absl::Duration kBetweenAttempts = absl::Milliseconds(50);

std::string ReadHolder(int fd) {
  std::array<char, 32> buffer{};
  const ssize_t size = pread(fd, buffer.data(), buffer.size(), 0);
  const std::string_view text = Strip(std::string_view(buffer.data(), size > 0 ? size : 0));
  return text.empty() ? "unknown" : std::string(text);
}

// The lock holds without the number, which only helps people: a full disk must
// not keep the daemon from starting.
void WriteHolder(int fd) {
  const std::string pid = Concat(getpid(), "\n");
  if (ftruncate(fd, 0) == 0) {
    const ssize_t written = pwrite(fd, pid.data(), pid.size(), 0);
    static_cast<void>(written);
  }
}

}  // namespace

absl::StatusOr<LockFile> LockFile::Lock(const std::string& path, int fd, int operation) {
  LockFile lock(fd);
  for (int attempt = 1; flock(fd, operation | LOCK_NB) != 0; ++attempt) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EWOULDBLOCK) {
      return FileError(path, "locking", errno);
    }
    if (attempt == kAttempts) {
      return absl::FailedPreconditionError(
          Concat(path, ": another daemon, process ", ReadHolder(fd),
                 ", uses this state directory; stop it or choose another directory"));
    }
    absl::SleepFor(kBetweenAttempts);
  }
  return lock;
}

absl::StatusOr<LockFile> LockFile::Acquire(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    return FileError(path, "opening", errno);
  }
  absl::StatusOr<LockFile> lock = Lock(path, fd, LOCK_EX);
  if (lock.ok()) {
    WriteHolder(fd);
  }
  return lock;
}

absl::StatusOr<LockFile> LockFile::AcquireShared(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    if (errno == ENOENT) {
      return LockFile(-1);
    }
    return FileError(path, "opening", errno);
  }
  return Lock(path, fd, LOCK_SH);
}

LockFile::LockFile(LockFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

LockFile::~LockFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

}  // namespace convtune::db::sqlite
