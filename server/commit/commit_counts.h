// ImportCounts and FleetCounts say what became of tunings that were given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/tuning/digest.h"

namespace convtune::commit {

// Outcomes of an import, by tuning.
struct ImportCounts {
  int64_t taken = 0;
  int64_t kept = 0;  // what was there is as good or better
};

// Outcomes of tunings from the fleet.
struct FleetCounts {
  int64_t taken = 0;
  int64_t unchanged = 0;            // what was there is the same
  std::vector<TuningKey> deferred;  // this node's own has to be delivered first
};

// True if the key's tuning waits to be delivered to the fleet.
using WaitsForFleet = std::function<absl::StatusOr<bool>(const TuningKey&)>;

}  // namespace convtune::commit
