#include "db/fleet/node_tunings.h"

#include <map>
#include <optional>

#include "db/fleet/evidence.h"
#include "db/fleet/reports.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// Of a statement: a node may have many thousands.
constexpr int64_t kNodePage = 1000;

}  // namespace

absl::StatusOr<std::vector<NumberedNode>> ListMeasuringNodes(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      // Of a node that was forgotten and came back, the later one.
      postgres.Query("SELECT DISTINCT ON (name) node_id, name FROM nodes WHERE node_id IN (SELECT "
                     "node_id FROM evidence WHERE current) ORDER BY name, node_id DESC"));
  std::vector<NumberedNode> all;
  for (const postgres::Row row : rows) all.push_back({row[0], row[1]});
  return all;
}

absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const NumberedNode& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take) {
  ASSIGN_OR_RETURN(const std::vector<NumberedProvenance> listed, ListProvenances(postgres));
  std::map<int64_t, Provenance> provenances;
  for (const NumberedProvenance& each : listed) {
    if (each.provenance.node == node.name) provenances[each.id] = each.provenance;
  }
  std::string environment_text, problem_text;
  while (true) {
    ASSIGN_OR_RETURN(
        const postgres::Result rows,
        postgres.Query(
            "SELECT e.payload, v.text, v.gpu_model, e.provenance_id, q.text FROM evidence e "
            "JOIN environments v USING (environment_id) JOIN problems q USING (problem_id) "
            "WHERE e.node_id = $1 AND e.current AND "
            "(v.text COLLATE \"C\", q.text COLLATE \"C\") > ($2, $3) "
            "ORDER BY v.text COLLATE \"C\", q.text COLLATE \"C\" LIMIT $4",
            {node.id, environment_text, problem_text, kNodePage}));
    for (const postgres::Row row : rows) {
      environment_text = row[1];
      problem_text = row[4];
      std::optional<StoredEvidence> stored = ParseEvidence(row[0], row[1], row[2]);
      if (!stored.has_value()) continue;
      stored->tuning.provenance = provenances[row[3]];
      RETURN_IF_ERROR(take(stored->tuning, stored->environment));
    }
    if (rows.size() < kNodePage) return absl::OkStatus();
  }
}

}  // namespace convtune::db::fleet
