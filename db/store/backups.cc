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

constexpr char kNameFormat[] = "convtune-%E4Y%m%dT%H%M%SZ.db";
constexpr mode_t kFolderMode = 0750;

std::optional<absl::Time> TimeOf(const std::string& name) {
  absl::Time time;
  const bool read = absl::ParseTime(kNameFormat, name, absl::UTCTimeZone(), &time, nullptr);
  // ParseTime also reads numbers with fewer digits than FormatTime writes.
  if (!read || absl::FormatTime(kNameFormat, time, absl::UTCTimeZone()) != name) return {};
  return time;
}

}  // namespace

Backups::Backups(Options options) : options_(std::move(options)) {
  // A copy whose name is a time in the future was made before the clock was set back. It does not
  // count as the newest.
  for (const std::string& name : List()) {
    if (const absl::Time time = *TimeOf(name); time <= options_.clock->Now()) newest_ = time;
  }
  if (options_.every > absl::ZeroDuration()) thread_ = std::thread([this] { Loop(); });
}

Backups::~Backups() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void Backups::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.SignalAll();
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
  Delete(List(/*partial=*/true));
  const absl::StatusOr<int64_t> bytes =
      options_.store->Backup(copy.path(), [this] { return stopped(); });
  if (absl::IsCancelled(bytes.status())) {
    return absl::UnavailableError("the daemon stops: the copy was broken off, and is not there");
  }
  RETURN_IF_ERROR(bytes.status());
  copy.set_bytes(*bytes);
  std::string error;
  const std::optional<absl::Time> time = TimeOf(name);
  if (time) {
    std::vector<std::string> old = List();
    // After a clock went back the new one sorts before older ones.
    std::erase(old, name);
    old.resize(old.size() - std::min(old.size(), static_cast<size_t>(options_.keep) - 1));
    error = Delete(old);
  }
  if (time) {
    MutexLock lock(mutex_);
    newest_ = *time;
    error_ = error;
  }
  return copy;
}

bool Backups::stopped() const {
  MutexLock lock(mutex_);
  return stopped_;
}

std::string Backups::Delete(const std::vector<std::string>& names) const {
  std::string error;
  for (const std::string& name : names) {
    const std::string path = Concat(options_.folder, "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      error = Concat(path, " cannot be deleted: ", std::strerror(errno));
    }
  }
  return error;
}

v1::BackupState Backups::GetState() const {
  v1::BackupState state;
  state.set_folder(options_.folder);
  if (options_.every > absl::ZeroDuration()) *state.mutable_interval() = ToProto(options_.every);
  MutexLock lock(mutex_);
  if (newest_ > absl::InfinitePast()) *state.mutable_newest_time() = ToProto(newest_);
  state.set_error(error_);
  if (error_.empty() && state.has_interval() && state.has_newest_time() &&
      options_.clock->Now() - newest_ > 2 * options_.every) {
    state.set_error("none was made for two of its periods");
  }
  return state;
}

std::vector<std::string> Backups::List(bool partial) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(options_.folder, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    const size_t mark = partial ? name.find(".partial-") : std::string::npos;
    if (TimeOf(name.substr(0, mark)) && partial == (mark != std::string::npos)) {
      names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Backups::Loop() {
  absl::Duration wait;
  {
    MutexLock lock(mutex_);
    const absl::Duration age = options_.clock->Now() - newest_;
    wait = std::max(options_.every - age, absl::ZeroDuration());
  }
  absl::Duration retry = options_.retry;
  while (true) {
    const SteadyTime next = SteadyTime::Now() + wait;
    {
      MutexLock lock(mutex_);
      while (!stopped_ && SteadyTime::Now() < next) {
        changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(next - SteadyTime::Now()));
      }
      if (stopped_) return;
    }
    const absl::StatusOr<v1::BackupDatabaseResponse> copy = Write("");
    if (!copy.ok() && stopped()) return;
    wait = copy.ok() ? options_.every : std::min(options_.every, retry);
    retry = copy.ok() ? options_.retry : std::min(options_.every, retry * 2);
    std::string error;
    {
      MutexLock lock(mutex_);
      if (!copy.ok()) error_ = std::string(copy.status().message());
      error = error_;
    }
    if (!copy.ok()) {
      options_.done(copy.status());
      continue;
    }
    options_.done(copy->path());
    if (!error.empty()) options_.done(absl::UnavailableError(error));
  }
}

}  // namespace convtune::db::store
