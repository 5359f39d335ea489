// A Publisher decides with operators what unmodified programs are served, keeps the snapshot of it
// up to date, and learns from what programs report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/release_service.pb.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "proto/model/enums.h"
#include "server/lookup/tuning_index.h"
#include "server/release/releases.h"

namespace convtune::commit {
class Committer;
}  // namespace convtune::commit

namespace convtune::release {

// PublishOptions say what unmodified programs are served, and how.
struct PublishOptions {
  std::string folder;                    // of the snapshot and the socket; made if need be
  Evidence floor = Evidence::kObserved;  // less is not served
  bool auto_promote = false;             // a changed choice does not wait
  // Tune what programs miss while nobody waits. The next three are for one such tuning.
  bool tune_wanted = false;
  absl::Duration wanted_budget = absl::Seconds(10);
  int64_t wanted_memory_budget_bytes = 0;  // 0: what the device has free
  // How long it waits, before it begins, for a GPU that no other process uses. Tunings that are
  // queued meanwhile wait behind it. 0: it does not wait.
  absl::Duration wanted_wait_idle = absl::ZeroDuration();
  bool open_to_all = false;  // everybody who reaches the folder may report, not the group alone
  // From a change to the snapshot that has it; changes in between go with it.
  absl::Duration debounce = absl::Milliseconds(500);
};

// Thread-safe. It works on a thread of its own: commits and look-ups never wait for it. Methods
// that change something, and DiffReleases, wait for the disk.
class Publisher {
 public:
  struct Options {
    PublishOptions publish;
    db::TuningStore* store = nullptr;  // these four outlive it
    const lookup::TuningIndex* index = nullptr;
    commit::Committer* committer = nullptr;
    const Clock* clock = nullptr;
    // Waits until the index is whole: nothing is decided or published before. UNAVAILABLE if the
    // daemon stops before.
    std::function<absl::Status()> await_index;
    // Environments that a device has: they are in the snapshot even before anything is chosen.
    std::vector<Environment> current;
    // The environment in full where the daemon knows it, else as given, which
    // the daemon then takes note of.
    std::function<Environment(const Environment&)> complete;
    // The key text of the environment of that name.
    std::function<absl::StatusOr<std::string>(const std::string&)> resolve;
    // Tunes the problem if a device of its environment has nothing to do;
    // returns false otherwise. `done` is called once, perhaps at once.
    std::function<bool(const TuningKey&, std::function<void(const absl::Status&)> done)> tune;
  };

  static std::unique_ptr<Publisher> Create(Options options);
  // Stops.
  virtual ~Publisher() = default;

  // Reads what was decided before, opens the socket, starts the thread. Errors
  // are the store's alone; a folder that cannot be had is in Status().
  virtual absl::Status Start() = 0;
  // The problem's tuning changed; `override`: its pin or its quarantined
  // candidates did. Returns at once.
  virtual void NoteChange(const TuningKey& key, bool override) = 0;
  // Bans changed, and with them what is served of any problem. Returns at once.
  virtual void NoteBans() = 0;
  // Takes in what was noted, publishes a last time and ends the thread.
  // Idempotent.
  virtual void Stop() = 0;

  // One page with all of them.
  virtual v1::ListReleasesResponse ListReleases() = 0;
  // See Releases::Diff; `environment` is a name, empty for all.
  virtual absl::StatusOr<ReleaseDiff> DiffReleases(int64_t from, int64_t to,
                                                   const std::string& environment) = 0;
  // See ReleaseHistory. When they return OK the snapshot is written, or the
  // status says why not.
  virtual absl::StatusOr<v1::Release> PromoteRelease(const std::string& author,
                                                     const std::string& reason,
                                                     int canary_permille) = 0;
  virtual absl::StatusOr<v1::Release> RollBackRelease(const std::string& author,
                                                      const std::string& reason, int64_t to) = 0;
  // See Releases::PromoteFleet. Returns the release's number; 0: nothing of the fleet's waits.
  virtual absl::StatusOr<int64_t> FollowFleet(const std::string& author,
                                              const std::string& reason) = 0;
  // Most wanted first. `environment`: a name, for all environments that have it; empty: all.
  // NOT_FOUND if neither a wanted problem nor the daemon has it.
  virtual absl::StatusOr<std::vector<v1::WantedProblem>> ListWanted(
      const std::string& environment) = 0;
  virtual v1::Publication Status() = 0;
};

// Reads a part of the published snapshot file in that folder, for machines that do not see it.
// NOT_FOUND and ABORTED as ReleaseService says; INTERNAL: the file cannot be read. Thread-safe.
absl::StatusOr<v1::ReadSnapshotResponse> ReadSnapshotPiece(const std::string& folder,
                                                           const v1::ReadSnapshotRequest& request);

}  // namespace convtune::release
