// CheckLocalDisk refuses network file systems. SQLite's write-ahead log needs working
// locks and shared memory, which they do not give: a database there gets damaged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::db::sqlite {

struct FileSystemInfo {
  int64_t magic = 0;      // statfs's f_type
  std::string type_name;  // as in /proc/self/mounts, "fuse.sshfs"; may be empty
};

using FileSystemProbe = std::function<absl::StatusOr<FileSystemInfo>(const std::string& path)>;

// Asks the system. UNAVAILABLE if it does not tell.
absl::StatusOr<FileSystemInfo> ProbeFileSystem(const std::string& path);

// FAILED_PRECONDITION if `path` is on a network file system, or on one of FUSE
// that is not known to be local.
absl::Status CheckLocalDisk(const std::string& path, const FileSystemInfo& info);

}  // namespace convtune::db::sqlite
