// ImportCounts and FleetCounts say what became of tunings that were given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/digest.h"

namespace convtune::commit {

// What became of tunings that were imported.
struct ImportCounts {
  int64_t taken = 0;
  int64_t kept = 0;  // what was there is as good or better
};

// What became of tunings that the fleet gave.
struct FleetCounts {
  int64_t taken = 0;
  int64_t unchanged = 0;            // what was there is the same
  std::vector<TuningKey> deferred;  // this node's own has to be delivered first
};

// True if the key's tuning waits to be delivered to the fleet.
using WaitsForFleet = std::function<absl::StatusOr<bool>(const TuningKey&)>;

}  // namespace convtune::commit
