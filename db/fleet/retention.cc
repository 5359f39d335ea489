#include "db/fleet/retention.h"

#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// In one transaction, so that nothing waits long for a lock.
constexpr int64_t kAtOnce = 10'000;

absl::StatusOr<int64_t> DeleteAll(postgres::Connection& postgres, const std::string& sql,
                                  absl::Duration keep) {
  int64_t all = 0;
  while (true) {
    ASSIGN_OR_RETURN(const int64_t deleted, postgres.Change(sql, {keep, kAtOnce}));
    all += deleted;
    if (deleted < kAtOnce) return all;
  }
}

// Whoever pools writes a payload and refers to it in one transaction, and may refer
// to one that was there: the lock waits for those, and keeps others out until what
// nothing refers to is gone.
absl::StatusOr<int64_t> DeletePayloads(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute("LOCK TABLE pooled_payloads IN SHARE ROW EXCLUSIVE MODE"));
  ASSIGN_OR_RETURN(const int64_t deleted,
                   postgres.Change("DELETE FROM pooled_payloads y WHERE NOT EXISTS (SELECT 1 FROM "
                                   "pooled p WHERE p.digest = y.digest) AND NOT EXISTS (SELECT 1 "
                                   "FROM release_choices c WHERE c.digest = y.digest)"));
  RETURN_IF_ERROR(transaction.Commit());
  return deleted;
}

}  // namespace

absl::StatusOr<Thinned> ThinFleet(postgres::Connection& postgres, absl::Duration keep) {
  Thinned thinned;
  ASSIGN_OR_RETURN(thinned.evidence,
                   DeleteAll(postgres,
                             "DELETE FROM evidence WHERE evidence_id IN (SELECT evidence_id FROM "
                             "evidence WHERE NOT current AND receive_time < now() - $1::float8 * "
                             "interval '1 second' LIMIT $2)",
                             keep));
  ASSIGN_OR_RETURN(thinned.tasks,
                   DeleteAll(postgres,
                             "DELETE FROM tasks WHERE task_id IN (SELECT task_id FROM tasks WHERE "
                             "state IN (3, 5) AND end_time < now() - $1::float8 * interval '1 "
                             "second' LIMIT $2)",
                             keep));
  RETURN_IF_ERROR(
      postgres.Execute("DELETE FROM batches b WHERE create_time < now() - $1::float8 * "
                       "interval '1 second' AND NOT EXISTS (SELECT 1 FROM tasks t WHERE "
                       "t.batch_id = b.batch_id)",
                       {keep}));
  ASSIGN_OR_RETURN(thinned.payloads, DeletePayloads(postgres));
  return thinned;
}

absl::StatusOr<std::optional<Thinned>> ThinFleetDaily(postgres::Connection& postgres,
                                                      absl::Duration keep) {
  ASSIGN_OR_RETURN(const int64_t ours,
                   postgres.Change("UPDATE upkeep SET last_time = now() WHERE what = 'thin' AND "
                                   "last_time < now() - interval '1 day'"));
  if (ours == 0) return std::nullopt;
  return ThinFleet(postgres, keep);
}

}  // namespace convtune::db::fleet
