#include "db/sqlite/file_util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "proto/base/replace_file.h"
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::sqlite {

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
  return FileError(from, "renaming");
}

absl::Status SyncFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError(path, "opening");
  return fsync(fd.get()) == 0 ? absl::OkStatus() : FileError(path, "fsync");
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) {
    unlink(path_.c_str());
  }
}

}  // namespace convtune::db::sqlite
