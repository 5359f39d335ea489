// File operations that the store needs beside SQLite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace convtune::db::sqlite {

// "path: action: the system's words for error_number". RESOURCE_EXHAUSTED for a
// full disk or quota, UNAVAILABLE for anything else.
absl::Status FileError(const std::string& path, const char* action, int error_number);

// Bytes of the file; nullopt if there is none or it cannot be asked.
std::optional<int64_t> FileSize(const std::string& path);
// Fails with ALREADY_EXISTS rather than replace `to`.
absl::Status RenameNoReplace(const std::string& from, const std::string& to);
// fsync of a file or a directory.
absl::Status SyncPath(const std::string& path);
// "/a/b/c" gives "/a/b"; "c" gives ".".
std::string DirectoryOf(const std::string& path);

// Removes the file at the end unless it was kept. Errors are not reported.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  void Keep() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace convtune::db::sqlite
