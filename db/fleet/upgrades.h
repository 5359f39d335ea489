// Finds the tunings that have to be verified after an upgrade.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "db/fleet/names.h"
#include "db/postgres/connection.h"
#include "proto/model/environment.h"

namespace convtune::db::fleet {

// For an environment and driver that a node has come to: queues, as one batch for
// each reason, what the newest earlier cuDNN's environment of that hardware has and
// this one has not as well, and, where no driver of the environment is newer, what
// was measured there on others. By weight of use, as FindStale. What was queued so
// within the last week is left out. Nothing where somebody else is at it. Returns
// how many problems were queued.
absl::StatusOr<int64_t> QueueVerification(postgres::Connection& postgres, FleetNames& names,
                                          const Environment& environment,
                                          const std::string& driver);

}  // namespace convtune::db::fleet
