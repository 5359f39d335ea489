#include "db/fleet/reports.h"

#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "db/fleet/evidence.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// Of a ReportSelection.
constexpr char kSelected[] =
    "($1::integer[] = '{}' OR environment_id = ANY($1)) AND ($2::integer[] = '{}' OR problem_id = "
    "ANY($2))";

// Tunings of a statement: a node may have many thousands.
constexpr int64_t kNodePage = 1000;

// Of a statement that gives numbers and texts.
absl::StatusOr<std::vector<Numbered<std::string>>> ReadTexts(postgres::Connection& postgres,
                                                             const char* sql) {
  ASSIGN_OR_RETURN(const postgres::Result rows, postgres.Query(sql));
  std::vector<Numbered<std::string>> all;
  for (const postgres::Row row : rows) all.push_back({row[0], row[1]});
  return all;
}

}  // namespace

absl::StatusOr<std::vector<Numbered<Provenance>>> ListProvenances(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT p.provenance_id, n.name, p.gpu_uuid, p.driver_version, "
                                  "p.cuda_version, p.memory_bytes, p.cublaslt_build, p.nvrtc_build "
                                  "FROM provenances p JOIN nodes n "
                                  "USING (node_id) ORDER BY p.provenance_id"));
  std::vector<Numbered<Provenance>> all;
  for (const postgres::Row row : rows) {
    Provenance provenance;
    provenance.node = row[1];
    provenance.gpu_uuid = row[2];
    provenance.driver_version = row[3];
    provenance.cuda_version = row[4];
    provenance.memory_bytes = row[5];
    provenance.cublaslt_build = row[6];
    provenance.nvrtc_build = row[7];
    all.push_back({row[0], std::move(provenance)});
  }
  return all;
}

absl::StatusOr<FleetLookups> SumLookups(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT COUNT(*), COALESCE(SUM(lookups), 0)::bigint, "
                                  "COALESCE(SUM(hits), 0)::bigint FROM nodes WHERE "
                                  "daemon_start_time IS NOT NULL AND forget_time IS NULL"));
  return FleetLookups{rows[0][0], rows[0][1], rows[0][2]};
}

absl::StatusOr<std::vector<FleetWanted>> ListFleetWanted(postgres::Connection& postgres,
                                                         int64_t limit) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT q.text, e.text, SUM(w.misses)::bigint, COUNT(*) FROM wanted w JOIN "
                     "problems q USING (problem_id) JOIN environments e USING (environment_id) "
                     "GROUP BY q.text, e.text ORDER BY 3 DESC, 1, 2 LIMIT $1",
                     {limit}));
  std::vector<FleetWanted> all;
  for (const postgres::Row row : rows) all.push_back({row[0], row[1], row[2], row[3]});
  return all;
}

absl::StatusOr<std::vector<Numbered<Environment>>> ListPooledEnvironments(
    postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT environment_id, text, gpu_model FROM environments WHERE "
                                  "environment_id IN (SELECT environment_id FROM pooled) ORDER BY "
                                  "text"));
  std::vector<Numbered<Environment>> all;
  for (const postgres::Row row : rows) {
    ASSIGN_OR_RETURN(Environment environment, Environment::Parse(std::string(row[1])));
    environment.gpu_model = row[2];
    all.push_back({row[0], std::move(environment)});
  }
  return all;
}

absl::StatusOr<std::vector<Numbered<std::string>>> ListPooledProblems(
    postgres::Connection& postgres) {
  return ReadTexts(postgres,
                   "SELECT problem_id, text FROM problems WHERE problem_id IN (SELECT problem_id "
                   "FROM pooled) ORDER BY text");
}

absl::StatusOr<int64_t> CountReportRows(postgres::Connection& postgres,
                                        const ReportSelection& selection) {
  return postgres.QueryValue<int64_t>(
      absl::StrCat("SELECT COALESCE(SUM(node_count), 0)::bigint FROM pooled WHERE ", kSelected),
      {selection.environments, selection.problems});
}

absl::Status ReadReportGroups(postgres::Connection& postgres, const ReportSelection& selection,
                              const std::function<absl::Status(const ReportGroup&)>& take) {
  return postgres.Stream(
      absl::StrCat("SELECT environment_id::text, problem_id::text, report_rows FROM pooled WHERE ",
                   kSelected, " ORDER BY pooled.environment_id, pooled.problem_id"),
      {selection.environments, selection.problems}, [&](const postgres::Row& row) {
        // A text is the same in both formats of values.
        return take({row[0], row[1], row[2].bytes()});
      });
}

absl::StatusOr<std::vector<Numbered<std::string>>> ListMeasuringNodes(
    postgres::Connection& postgres) {
  // Of a node that was forgotten and came back, the later one.
  return ReadTexts(postgres,
                   "SELECT DISTINCT ON (name) node_id, name FROM nodes WHERE node_id IN (SELECT "
                   "node_id FROM evidence WHERE current) ORDER BY name, node_id DESC");
}

absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const Numbered<std::string>& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take) {
  ASSIGN_OR_RETURN(const std::vector<Numbered<Provenance>> listed, ListProvenances(postgres));
  std::map<int64_t, Provenance> provenances;
  for (const Numbered<Provenance>& each : listed) {
    if (each.value.node == node.value) provenances[each.id] = each.value;
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
