// Functions that keep a database off network file systems, and two daemons from one state
// directory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::sqlite {

struct FileSystemInfo {
  int64_t magic = 0;      // statfs's f_type
  std::string type_name;  // as in /proc/self/mounts, "fuse.sshfs"; may be empty
};

using FileSystemProbe = std::function<absl::StatusOr<FileSystemInfo>(const std::string& path)>;

// Asks the system. UNAVAILABLE if it does not tell.
absl::StatusOr<FileSystemInfo> ProbeFileSystem(const std::string& path);

// FAILED_PRECONDITION if `path` is on a network file system, or on one of FUSE that is not known to
// be local. SQLite's write-ahead log needs working locks and shared memory, which they do not give:
// a database there gets damaged.
absl::Status CheckLocalDisk(const std::string& path, const FileSystemInfo& info);

// The lock is on a file of its own, since closing any descriptor of a database file drops the
// locks that SQLite holds on it. The kernel releases it when the descriptor is closed, and so when
// the process ends, however it ends; the file stays.

// Takes the lock and writes the process id into the file. FAILED_PRECONDITION
// naming the holder's process id if it is not free within half a second
// (a program that was just killed may still be going); UNAVAILABLE if the
// file cannot be made.
absl::StatusOr<UniqueFd> LockFile(const std::string& path);
// Takes the lock together with other readers, for read-only media; writes nothing. OK without a
// lock where the file does not exist.
absl::StatusOr<UniqueFd> ShareLockFile(const std::string& path);

}  // namespace convtune::db::sqlite
