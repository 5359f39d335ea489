// A ReleaseManager is releases, the snapshot, and what programs asked for in vain, as operators see
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/release_service.pb.h"
#include "server/release/releases.h"

namespace convtune::release {

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

}  // namespace convtune::release
