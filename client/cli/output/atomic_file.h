// An AtomicFile is there whole or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::cli::output {

// Written under a temporary name beside `path`, which Commit() gives it. A
// symbolic link stays one: what it names is written, also where that is not
// there yet. SIGINT, SIGTERM and SIGHUP take the temporary file along, where the
// program has no handler of its own. Not thread-safe. Errors name the path.
class AtomicFile {
 public:
  // INVALID_ARGUMENT for "-", and for what is there and is no regular file:
  // renaming over a device or a pipe would take it away from everybody. Its
  // message begins with `argument`, which is where the path was given: "OUT".
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            const char* argument);
  // As Create, but INVALID_ARGUMENT also for a file that is there, is not empty and does not begin
  // with one of `beginnings`: a mistyped name must not cost a file of another kind.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> CreateOver(
      const std::string& path, const char* argument,
      const std::vector<std::string_view>& beginnings);
  // Makes `path` a file of these bytes: Create, Write and Commit.
  static absl::Status WriteWhole(const std::string& path, const char* argument,
                                 std::string_view bytes);
  // Removes what was not committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Write(std::string_view bytes);
  // Syncs the file, puts it in the place of what `path` named before, and syncs
  // the folder.
  absl::Status Commit();
  // The temporary name, under which others may read it before Commit().
  const std::string& temporary_path() const { return temporary_; }

 private:
  AtomicFile(std::string path, std::string temporary, int fd);

  const std::string path_;
  const std::string temporary_;
  const int fd_;
  bool committed_ = false;
};

}  // namespace convtune::cli::output
