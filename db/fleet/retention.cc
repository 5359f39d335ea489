#include "db/fleet/retention.h"

#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// In one transaction, so that nothing waits long for a lock.
constexpr int64_t kAtOnce = 10'000;

}  // namespace

absl::StatusOr<Thinned> ThinFleet(postgres::Connection& postgres, absl::Duration keep) {
  Thinned thinned;
  while (true) {
    ASSIGN_OR_RETURN(const postgres::Result rows,
                     postgres.Query("SELECT evidence_count, task_count, payload_count FROM "
                                    "thin($1::float8 * interval '1 second', $2)",
                                    {keep, kAtOnce}));
    const int64_t evidence = rows[0][0];
    const int64_t tasks = rows[0][1];
    thinned.evidence += evidence;
    thinned.tasks += tasks;
    thinned.payloads += int64_t{rows[0][2]};
    if (evidence < kAtOnce && tasks < kAtOnce) return thinned;
  }
}

absl::StatusOr<std::optional<Thinned>> ThinFleetDaily(postgres::Connection& postgres,
                                                      absl::Duration keep) {
  ASSIGN_OR_RETURN(const bool ours, postgres.QueryValue<bool>("SELECT thin_is_due()"));
  if (!ours) return std::nullopt;
  return ThinFleet(postgres, keep);
}

}  // namespace convtune::db::fleet
