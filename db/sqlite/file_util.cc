#include "db/sqlite/file_util.h"
#include "proto/base/strings.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace convtune::db::sqlite {

absl::Status FileError(const std::string& path, const char* action, int error_number) {
  const auto code = error_number == ENOSPC || error_number == EDQUOT
                        ? absl::StatusCode::kResourceExhausted
                        : absl::StatusCode::kUnavailable;
  return absl::Status(
      code, Concat(path, ": ", action, ": ", std::generic_category().message(error_number)));
}

std::optional<int64_t> FileSize(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return std::nullopt;
  }
  return static_cast<int64_t>(info.st_size);
}

absl::Status RenameNoReplace(const std::string& from, const std::string& to) {
  int rc = renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
  if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // The file system cannot refuse by itself.
    if (access(to.c_str(), F_OK) == 0) {
      errno = EEXIST;
    } else {
      rc = rename(from.c_str(), to.c_str());
    }
  }
  if (rc == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(Concat(to, ": exists already"));
  }
  return FileError(from, "renaming", errno);
}

absl::Status SyncPath(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return FileError(path, "opening", errno);
  }
  const int rc = fsync(fd);
  const int error_number = errno;
  close(fd);
  return rc == 0 ? absl::OkStatus() : FileError(path, "fsync", error_number);
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) {
    unlink(path_.c_str());
  }
}

}  // namespace convtune::db::sqlite
