// A ReleaseManager is releases, the snapshot, and what programs asked for in vain, as operators see
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/model/enums.h"
#include "server/release/releases.h"

namespace convtune::release {

// PublishOptions say what unmodified programs are served, and how.
struct PublishOptions {
  std::string folder;                    // of the snapshot and the socket; made if need be
  Evidence floor = Evidence::kObserved;  // less is not served
  bool auto_promote = false;             // a changed choice does not wait
  bool tune_wanted = false;              // tune what programs miss while nobody waits
  absl::Duration wanted_budget = absl::Seconds(10);  // for one of them
  int64_t wanted_memory_budget_bytes = 0;            // 0: what the device has free
  // For a GPU that nobody else uses, before each; what is queued meanwhile waits too.
  absl::Duration wanted_wait_idle = absl::ZeroDuration();
  bool open_to_all = false;  // everybody who reaches the folder may report, not the group alone
  // From a change to the snapshot that has it; changes in between go with it.
  absl::Duration debounce = absl::Milliseconds(500);
};

// Thread-safe. Methods wait for the disk.
class ReleaseManager {
 public:
  virtual ~ReleaseManager() = default;

  virtual ReleaseList ListReleases() = 0;
  // See Releases::Diff; `environment` is a name, empty for all.
  virtual absl::StatusOr<ReleaseDiff> DiffReleases(int64_t from, int64_t to,
                                                   const std::string& environment,
                                                   const TuningKey& after, size_t limit) = 0;
  // See ReleaseHistory. When they return OK the snapshot is written, or the
  // status says why not.
  virtual absl::StatusOr<Release> PromoteRelease(const std::string& author,
                                                 const std::string& reason,
                                                 int canary_permille) = 0;
  virtual absl::StatusOr<Release> RollBackRelease(const std::string& author,
                                                  const std::string& reason, int64_t to) = 0;
  // See Releases::PromoteFleet.
  virtual absl::StatusOr<std::optional<Release>> FollowFleet(const std::string& author,
                                                             const std::string& reason) = 0;
  // Most wanted first. `environment`: a name, for all environments that have it; empty: all.
  // NOT_FOUND if neither a wanted problem nor the daemon has it.
  virtual absl::StatusOr<std::vector<WantedProblem>> ListWanted(const std::string& environment) = 0;
  virtual v1::Publication Status() = 0;
};

// Reads a part of the published snapshot file in that folder, for machines that do not see it.
// NOT_FOUND and ABORTED as ReleaseService says; INTERNAL: the file cannot be read. Thread-safe.
absl::StatusOr<v1::ReadSnapshotResponse> ReadSnapshotPiece(const std::string& folder,
                                                           const v1::ReadSnapshotRequest& request);

}  // namespace convtune::release
