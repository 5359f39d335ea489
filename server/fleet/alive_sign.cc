#include "server/fleet/alive_sign.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/systemd.h"
#include "proto/base/unique_fd.h"

namespace convtune::fleet {
namespace {

constexpr absl::Duration kBetweenSigns = absl::Seconds(1);

}  // namespace

absl::StatusOr<AliveSign> AliveSign::Create(const std::string& path) {
  if (path.empty()) return AliveSign(path);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--alive-file: cannot make ", path, ": ", std::strerror(errno)));
  }
  return AliveSign(path);
}

void AliveSign::Give() {
  const absl::Time now = absl::Now();
  // Also after the clock was set back.
  if (now < next_ && next_ - now <= kBetweenSigns) return;
  next_ = now + kBetweenSigns;
  TellWatchdog();
  // A sign that cannot be given is one that the probe misses.
  if (!path_.empty()) utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
}

absl::StatusOr<absl::Duration> AliveSign::Silence(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat("--alive-file: ", path, ": ", std::strerror(errno)));
  }
  return std::max(absl::Now() - absl::TimeFromTimespec(info.st_mtim), absl::ZeroDuration());
}

}  // namespace convtune::fleet
