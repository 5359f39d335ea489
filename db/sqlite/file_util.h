// File operations that the store needs beside SQLite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace convtune::db::sqlite {

// Bytes of the file; nullopt if there is none or it cannot be asked.
std::optional<int64_t> FileSize(const std::string& path);
// Fails with ALREADY_EXISTS rather than replace `to`; other errors as FileError.
absl::Status RenameNoReplace(const std::string& from, const std::string& to);
// fsync of a file.
absl::Status SyncFile(const std::string& path);

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
