// A LockFile keeps two daemons from one state directory.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::sqlite {

// A lock on a file of its own, since closing any descriptor of a database file drops the
// locks that SQLite holds on it. The kernel releases it when the process ends, however it ends;
// the file stays. Move-only; the destructor releases. Not thread-safe; the lock is against
// other objects and processes.
class LockFile {
 public:
  // Takes the lock and writes the process id into the file. FAILED_PRECONDITION
  // naming the holder's process id if it is not free within half a second
  // (a program that was just killed may still be going); UNAVAILABLE if the
  // file cannot be made.
  static absl::StatusOr<LockFile> Acquire(const std::string& path);
  // For read-only media: shared with other readers and writes nothing. OK
  // without a lock where the file does not exist.
  static absl::StatusOr<LockFile> AcquireShared(const std::string& path);

 private:
  explicit LockFile(UniqueFd fd) : fd_(std::move(fd)) {}
  static absl::StatusOr<LockFile> Lock(const std::string& path, UniqueFd fd, int operation);

  UniqueFd fd_;
};

}  // namespace convtune::db::sqlite
