// An AliveSign says that the agent goes on: to systemd's watchdog, and to the probe
// of a pod by the time of a file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace convtune::fleet {

// For one thread.
class AliveSign {
 public:
  // Makes the file, for its owner alone, unless `path` is empty. INVALID_ARGUMENT:
  // it cannot be made.
  static absl::StatusOr<AliveSign> Create(const std::string& path);

  // At most one sign a second, so it may be called as often as one likes.
  void Give();
  // Since when no sign was given to that file. NOT_FOUND: there is none.
  static absl::StatusOr<absl::Duration> Silence(const std::string& path);

 private:
  explicit AliveSign(std::string path) : path_(std::move(path)) {}

  std::string path_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace convtune::fleet
