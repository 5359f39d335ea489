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
#include "proto/base/replace_file.h"
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

absl::StatusOr<UniqueFd> Lock(const std::string& path, UniqueFd fd, int operation) {
  for (int attempt = 1; flock(fd.get(), operation | LOCK_NB) != 0; ++attempt) {
    if (errno == EINTR) {
      continue;
    }
    if (errno != EWOULDBLOCK) {
      return FileError(path, "locking");
    }
    if (attempt == kAttempts) {
      return absl::FailedPreconditionError(
          Concat(path, ": another daemon, process ", ReadHolder(fd.get()),
                 ", uses this state directory; stop it or choose another directory"));
    }
    absl::SleepFor(kBetweenAttempts);
  }
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> LockFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return FileError(path, "opening");
  absl::StatusOr<UniqueFd> lock = Lock(path, std::move(fd), LOCK_EX);
  if (lock.ok()) WriteHolder(lock->get());
  return lock;
}

absl::StatusOr<UniqueFd> ShareLockFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd.valid()) return Lock(path, std::move(fd), LOCK_SH);
  if (errno == ENOENT) return UniqueFd();
  return FileError(path, "opening");
}

}  // namespace convtune::db::sqlite
