// Functions that put whole files in their place, so that they stay when the power fails, and
// tell whether they are still there. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace convtune {

// Writes all bytes to the descriptor, which blocks. Where that fails, returns false, and errno says
// why.
bool WriteAll(int fd, std::string_view bytes);

// "path: action: the system's words for errno". RESOURCE_EXHAUSTED for a full disk or quota,
// UNAVAILABLE for anything else.
absl::Status FileError(const std::string& path, std::string_view action);

// Gives the file that is written through `fd` under the name `temporary` the name `path` in the
// same folder: syncs the file, renames it over what is there and syncs the folder. Errors name the
// path or the folder.
absl::Status PutInPlace(int fd, const std::string& temporary, const std::string& path);

// Writes `bytes` to a temporary name beside `path`, and puts it in place with
// mode 0644 whatever the umask. Nothing is left behind on an error, which names the path.
absl::Status ReplaceFile(const std::string& path, std::string_view bytes);

// Makes a file that was put in the place `path` stay there when the power
// fails. Errors name the folder. A folder that may not be opened for reading, or
// whose file system cannot sync one, is no error: the file is in its place, and
// its owner can do no more.
absl::Status SyncFolderOf(const std::string& path);

// A FileMark tells a file from another one of its name, and from itself before a change.
struct FileMark {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t changed_ns = 0;  // modification time, in nanoseconds since 1970

  bool operator==(const FileMark&) const = default;
  bool IsSameFile(const FileMark& other) const {
    return device == other.device && inode == other.inode;
  }
};

// Returns the mark of the file, or nullopt if stat() fails for it.
std::optional<FileMark> MarkOf(const std::string& path);
// Returns the size of the file in bytes, or 0 if stat() fails for it.
inline int64_t BytesOf(const std::string& path) { return MarkOf(path).value_or(FileMark()).bytes; }

}  // namespace convtune
