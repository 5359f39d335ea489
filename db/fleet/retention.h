// ThinFleet deletes rows that the fleet's database need not keep for ever.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/postgres/connection.h"

namespace convtune::db::fleet {

struct Thinned {
  int64_t evidence = 0;  // rows that a newer one had superseded
  int64_t tasks = 0;     // done or cancelled
  int64_t payloads = 0;  // pooled tunings that nothing refers to
};

// Removes what is older than `keep`. Current evidence, what any release refers to,
// dead tasks and pins stay, however old.
absl::StatusOr<Thinned> ThinFleet(postgres::Connection& postgres, absl::Duration keep);
// The same if nobody did within the last day; else nullopt.
absl::StatusOr<std::optional<Thinned>> ThinFleetDaily(postgres::Connection& postgres,
                                                      absl::Duration keep);

}  // namespace convtune::db::fleet
