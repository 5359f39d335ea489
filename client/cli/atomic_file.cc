#include "client/cli/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace convtune {

absl::Status AtomicFile::Error(const char* action) const {
  return absl::InternalError(absl::StrCat(path_, ": ", action, ": ", std::strerror(errno)));
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  std::string temporary = path + ".part-XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("FILE: ", path, " cannot be written: ", std::strerror(errno)));
  }
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), fd));
}

AtomicFile::~AtomicFile() {
  close(fd_);
  if (!committed_) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error("cannot be written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fsync(fd_) != 0) return Error("cannot be synced");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Error("cannot be put in place");
  committed_ = true;
  return absl::OkStatus();
}

}  // namespace convtune
