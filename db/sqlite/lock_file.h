// Functions that keep two daemons from one state directory.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::sqlite {

// The lock is on a file of its own, since closing any descriptor of a database file drops the
// locks that SQLite holds on it. The kernel releases it when the descriptor is closed, and so when
// the process ends, however it ends; the file stays.

// Takes the lock and writes the process id into the file. FAILED_PRECONDITION
// naming the holder's process id if it is not free within half a second
// (a program that was just killed may still be going); UNAVAILABLE if the
// file cannot be made.
absl::StatusOr<UniqueFd> LockFile(const std::string& path);
// For read-only media: shared with other readers and writes nothing. OK
// without a lock where the file does not exist.
absl::StatusOr<UniqueFd> ShareLockFile(const std::string& path);

}  // namespace convtune::db::sqlite
