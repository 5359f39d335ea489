#include "proto/base/replace_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"

namespace convtune {

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

absl::Status FileError(const std::string& path, std::string_view action) {
  const int error_number = errno;
  const auto code = error_number == ENOSPC || error_number == EDQUOT
                        ? absl::StatusCode::kResourceExhausted
                        : absl::StatusCode::kUnavailable;
  return absl::Status(
      code, Concat(path, ": ", action, ": ", std::generic_category().message(error_number)));
}

absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return errno == EACCES ? absl::OkStatus() : FileError(folder, "opening");
  }
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != EOPNOTSUPP) {
    return FileError(folder, "fsync");
  }
  return absl::OkStatus();
}

absl::Status PutInPlace(int fd, const std::string& temporary, const std::string& path) {
  if (fsync(fd) != 0) return FileError(path, "fsync");
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError(path, "renaming over it");
  return SyncFolderOf(path);
}

absl::Status ReplaceFile(const std::string& path, std::string_view bytes) {
  std::string temporary = path + ".XXXXXX";
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return FileError(path, "creating a temporary file beside it");
  absl::Status status;
  if (!WriteAll(fd.get(), bytes)) {
    status = FileError(temporary, "writing");
  } else if (fchmod(fd.get(), 0644) != 0) {
    status = FileError(temporary, "setting its mode");
  } else {
    status = PutInPlace(fd.get(), temporary, path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

std::optional<FileMark> MarkOf(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return FileMark{found.st_dev, found.st_ino, found.st_size,
                  found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
}

}  // namespace convtune
