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
      postgres.Query("SELECT node_id, name FROM nodes WHERE node_id IN (SELECT node_id "
                     "FROM evidence WHERE current) ORDER BY name"));
  std::vector<NumberedNode> all;
  for (int row = 0; row < rows.rows(); ++row) all.push_back({rows.Int(row, 0), rows.Text(row, 1)});
  return all;
}

absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const NumberedNode& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take) {
  ASSIGN_OR_RETURN(const std::vector<NumberedProvenance> listed, ListProvenances(postgres));
  std::map<int64_t, Provenance> provenances;
  for (const NumberedProvenance& each : listed) {
    if (each.node == node.name) provenances[each.id] = each.provenance;
  }
  std::string environment_text, problem_text;
  while (true) {
    ASSIGN_OR_RETURN(
        const postgres::Result rows,
        postgres.Query(
            "SELECT p.payload, v.text, v.gpu_model, e.provenance_id, q.text FROM evidence e "
            "JOIN evidence_payloads p USING (evidence_id) "
            "JOIN environments v USING (environment_id) JOIN problems q USING (problem_id) "
            "WHERE e.node_id = $1 AND e.current AND "
            "(v.text COLLATE \"C\", q.text COLLATE \"C\") > ($2, $3) "
            "ORDER BY v.text COLLATE \"C\", q.text COLLATE \"C\" LIMIT $4",
            postgres::Params()
                .Int(node.id)
                .Text(environment_text)
                .Text(problem_text)
                .Int(kNodePage)));
    for (int row = 0; row < rows.rows(); ++row) {
      std::optional<StoredEvidence> stored =
          ParseEvidence(rows.Bytes(row, 0), rows.Text(row, 1), rows.Text(row, 2));
      if (!stored.has_value()) continue;
      stored->tuning.provenance = provenances[rows.Int(row, 3)];
      RETURN_IF_ERROR(take(stored->tuning, stored->environment));
    }
    if (rows.rows() < kNodePage) return absl::OkStatus();
    environment_text = rows.Text(rows.rows() - 1, 1);
    problem_text = rows.Text(rows.rows() - 1, 4);
  }
}

}  // namespace convtune::db::fleet
