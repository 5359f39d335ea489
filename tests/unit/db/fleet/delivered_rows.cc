#include "tests/unit/db/fleet/delivered_rows.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "db/fleet/evidence.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

constexpr char kSelect[] =
    "SELECT e.payload, v.text, v.gpu_model, q.text FROM evidence e JOIN environments v USING "
    "(environment_id) JOIN problems q USING (problem_id) WHERE e.current AND e.node_id = $1";

absl::StatusOr<Tuning> Decode(const postgres::Row& row) {
  absl::StatusOr<TuningRecord> stored = ReadPayload(row[0], row[1], row[2]);
  if (!stored.ok()) {
    return absl::DataLossError(absl::StrCat("evidence: breaks a rule: ", std::string(row[3]),
                                            " in ", std::string(row[1])));
  }
  return std::move(stored->tuning);
}

}  // namespace

std::vector<v1::OutboxRow> OutboxRows(const std::vector<FleetDelivery>& deliveries) {
  std::vector<v1::OutboxRow> rows;
  for (const FleetDelivery& delivery : deliveries) {
    v1::OutboxRow& row = rows.emplace_back();
    row.mutable_id()->set_epoch(delivery.epoch);
    row.mutable_id()->set_sequence(delivery.sequence);
    *row.mutable_environment() =
        bundle::ToBundleEnvironment(1, delivery.environment, delivery.tuning.provenance);
    *row.mutable_tuning() = bundle::ToBundleTuning(delivery.tuning, 1, /*with_samples=*/false);
  }
  return rows;
}

absl::StatusOr<Tuning> GetDelivered(postgres::Connection& postgres, int64_t node_id,
                                    const TuningKey& key) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query(absl::StrCat(kSelect, " AND v.text = $2 AND q.text = $3"),
                                  {node_id, key.environment_text, key.problem_text}));
  if (rows.empty()) {
    return absl::NotFoundError(absl::StrCat("the node has delivered no ", key.problem_text));
  }
  return Decode(rows[0]);
}

absl::Status ForEachDelivered(postgres::Connection& postgres, int64_t node_id,
                              const std::function<void(Tuning)>& visit,
                              const std::function<void(const std::string&)>& corrupt) {
  // By bytes, as a node orders them, whatever the database's collation.
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(kSelect, " ORDER BY v.text COLLATE \"C\", q.text COLLATE \"C\""),
                     {node_id}));
  for (const postgres::Row row : rows) {
    absl::StatusOr<Tuning> tuning = Decode(row);
    if (tuning.ok()) {
      visit(*std::move(tuning));
    } else {
      corrupt(std::string(tuning.status().message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ForgetDelivered(postgres::Connection& postgres, int64_t node_id,
                                        const std::vector<TuningKey>& keys) {
  // In one order, so that two who forget cannot block each other.
  std::set<std::pair<std::string, std::string>> ordered;
  for (const TuningKey& key : keys) ordered.emplace(key.environment_text, key.problem_text);
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute("SELECT 1 FROM nodes WHERE node_id = $1 FOR UPDATE", {node_id}));
  int64_t forgotten = 0;
  for (const auto& [environment, problem] : ordered) {
    ASSIGN_OR_RETURN(
        const postgres::Result deleted,
        postgres.Query("DELETE FROM evidence e USING environments v, problems q WHERE e.node_id = "
                       "$1 AND e.environment_id = v.environment_id AND v.text = $2 AND "
                       "e.problem_id = q.problem_id AND q.text = $3 RETURNING e.environment_id, "
                       "e.problem_id, e.current",
                       {node_id, environment, problem}));
    if (deleted.empty()) continue;
    ++forgotten;
    RETURN_IF_ERROR(postgres.Execute(
        "INSERT INTO pool_queue (environment_id, problem_id) VALUES ($1, $2) ON CONFLICT "
        "(environment_id, problem_id) DO UPDATE SET queue_time = now()",
        {int64_t{deleted[0][0]}, int64_t{deleted[0][1]}}));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return forgotten;
}

}  // namespace convtune::db::fleet
