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
#include "server/release/releases.h"

namespace convtune::release {

// Counts of reports from programs since the start.
struct DatagramCounts {
  int64_t received = 0;
  int64_t malformed = 0;  // of them: ignored, since nothing sound could be read
  int64_t misses = 0;     // convolutions that were not served, as programs count them
  int64_t observed = 0;   // plans and search results that were kept
};

struct PublicationStatus {
  std::string folder;  // empty: nothing is published
  std::string error;   // why the last attempt failed; empty if it did not
  std::optional<absl::Time> publish_time;
  int64_t release = 0;  // of the file; 0: nothing is chosen yet
  int64_t canary_release = 0;
  int canary_permille = 0;
  int64_t choice_count = 0;
  int64_t carried_count = 0;  // of them, those that the database has lost
  int64_t waiting_changes = 0;
  bool auto_promote_held = false;
  Evidence floor = Evidence::kObserved;
  int64_t below_floor_count = 0;
  int64_t wanted_count = 0;
  int64_t wanted_elsewhere_count = 0;  // of them, those that no device here can tune
  std::string socket;                  // where programs report to; empty: nowhere
  std::string socket_error;            // why not
  DatagramCounts datagrams;
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
  // True if a device has the environment of that key text.
  virtual bool HasDevice(const std::string& environment_text) = 0;
  virtual PublicationStatus Status() = 0;
};

}  // namespace convtune::release
