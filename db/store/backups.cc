#include "db/store/backups.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

constexpr absl::Duration kRetry = absl::Minutes(5);
constexpr char kNameFormat[] = "convtune-%E4Y%m%dT%H%M%SZ.db";
constexpr mode_t kFolderMode = 0750;

std::optional<absl::Time> TimeOf(const std::string& name) {
  absl::Time time;
  const bool read = absl::ParseTime(kNameFormat, name, absl::UTCTimeZone(), &time, nullptr);
  // Not of 2026-1-31, which ParseTime takes too.
  if (!read || absl::FormatTime(kNameFormat, time, absl::UTCTimeZone()) != name) return {};
  return time;
}

}  // namespace

Backups::Backups(Options options) : options_(std::move(options)) {
  if (options_.every > absl::ZeroDuration()) thread_ = std::thread([this] { Loop(); });
}

Backups::~Backups() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<v1::BackupDatabaseResponse> Backups::Write(const std::string& path) {
  MutexLock writing(write_mutex_);
  std::string name = path;
  if (path.starts_with(options_.folder + "/")) name = path.substr(options_.folder.size() + 1);
  if (name.find('/') != std::string::npos || name.starts_with(".")) {
    return ViolationError({"path", Concat("must be a file directly in the daemon's --backup-dir ",
                                          options_.folder, ", is \"", path, "\"")});
  }
  if (name.empty()) {
    name = absl::FormatTime(kNameFormat, options_.clock->Now(), absl::UTCTimeZone());
  }
  if (mkdir(options_.folder.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        Concat("--backup-dir ", options_.folder, " cannot be made: ", std::strerror(errno)));
  }
  v1::BackupDatabaseResponse copy;
  copy.set_path(Concat(options_.folder, "/", name));
  ASSIGN_OR_RETURN(const int64_t bytes, options_.store->Backup(copy.path()));
  copy.set_bytes(bytes);
  if (TimeOf(name)) {
    std::vector<std::string> names = List();
    // After a clock went back the new one sorts before older ones.
    std::erase(names, name);
    for (size_t i = 0; i + static_cast<size_t>(options_.keep) < names.size() + 1; ++i) {
      const std::string old = Concat(options_.folder, "/", names[i]);
      if (unlink(old.c_str()) != 0 && errno != ENOENT) {
        return absl::UnavailableError(Concat(old, " cannot be deleted: ", std::strerror(errno)));
      }
    }
  }
  return copy;
}

v1::BackupState Backups::GetState() const {
  v1::BackupState state;
  state.set_folder(options_.folder);
  if (options_.every > absl::ZeroDuration()) *state.mutable_interval() = ToProto(options_.every);
  // Those of a time to come are of a clock that was set back since.
  for (const std::string& name : List()) {
    const absl::Time time = *TimeOf(name);
    if (time <= options_.clock->Now()) *state.mutable_newest_time() = ToProto(time);
  }
  MutexLock lock(mutex_);
  state.set_error(error_);
  return state;
}

std::vector<std::string> Backups::List() const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(options_.folder, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    if (TimeOf(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Backups::Loop() {
  const v1::BackupState before = GetState();
  SteadyTime next = SteadyTime::Now();
  if (before.has_newest_time()) {
    const absl::Duration age = options_.clock->Now() - FromProto(before.newest_time());
    next = next + std::max(options_.every - age, absl::ZeroDuration());
  }
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!stopped_ && SteadyTime::Now() < next) {
        changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(next - SteadyTime::Now()));
      }
      if (stopped_) return;
    }
    const absl::StatusOr<v1::BackupDatabaseResponse> copy = Write("");
    next = SteadyTime::Now() + (copy.ok() ? options_.every : std::min(options_.every, kRetry));
    {
      MutexLock lock(mutex_);
      error_ = copy.ok() ? "" : std::string(copy.status().message());
    }
    options_.done(copy.ok() ? absl::StatusOr<std::string>(copy->path()) : copy.status());
  }
}

}  // namespace convtune::db::store
