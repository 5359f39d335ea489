// Backups writes copies of a database into one folder, when it is asked and on a schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace convtune::db::store {

// Thread-safe. A copy is named convtune-20260131T120000Z.db by the time when it was begun, in UTC,
// unless its caller names it.
class Backups {
 public:
  struct Options {
    TuningStore* store = nullptr;  // these two outlive it
    const Clock* clock = nullptr;
    std::string folder;                           // absolute; made at the first copy
    absl::Duration every = absl::ZeroDuration();  // 0: no schedule
    int keep = 8;  // copies that are named by their time; a new one deletes the oldest
    // Called after each copy of the schedule, with its path or the error; and once more, with the
    // error, where an old copy cannot be deleted.
    std::function<void(const absl::StatusOr<std::string>&)> done = {};
    // The wait after a copy that failed. It doubles with each further failure, up to `every`, since
    // each attempt reads the whole database.
    absl::Duration retry = absl::Minutes(5);
  };
  // Starts the schedule's thread, if there is a schedule. The first copy is made once the newest
  // one in the folder is as old as `every`.
  explicit Backups(Options options);
  // Stops, and waits for the schedule's thread.
  ~Backups();
  Backups(const Backups&) = delete;
  Backups& operator=(const Backups&) = delete;

  // The folder is this daemon's alone. `path` is a file's name in the folder, its absolute path
  // there, or empty: by the time. Errors are TuningStore::Backup's; INVALID_ARGUMENT naming `path`
  // where it leads elsewhere.
  // UNAVAILABLE also after Stop.
  absl::StatusOr<v1::BackupDatabaseResponse> Write(const std::string& path);
  // Ends the schedule and breaks off the copy that is being written. Returns at once; idempotent.
  void Stop();
  // Does not wait, not even for the disk.
  v1::BackupState GetState() const;

 private:
  void Loop();
  bool stopped() const;
  // Names of the copies that are named by their time, oldest first. With `partial`: of the
  // unfinished ones instead, which a killed daemon left behind.
  std::vector<std::string> List(bool partial = false) const;
  // Deletes these files of the folder, as far as they can be. Returns the last error, or nothing.
  std::string Delete(const std::vector<std::string>& names) const;

  const Options options_;
  Mutex write_mutex_;  // one copy at a time, so that none is deleted unseen
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  // When the newest copy was begun, of those that are named by their time.
  absl::Time newest_ GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string error_ GUARDED_BY(mutex_);
  std::thread thread_;  // the last: it uses the others
};

}  // namespace convtune::db::store
