#include "db/fleet/reports.h"

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

// Tunings of a page: a node may have many thousands.
constexpr int kNodePage = 1000;
// Groups of a page: one has some 40 bytes for each node.
constexpr int kGroupPage = 200;

// The first columns of a row that ReadProvenance reads, of `p` in provenances and `n` in nodes.
constexpr char kProvenance[] =
    "p.driver_version, p.cuda_version, p.gpu_uuid, n.name, p.memory_bytes::text, p.cublaslt_build, "
    "p.nvrtc_build";

Provenance ReadProvenance(const postgres::Row& row) {
  return {row[0], row[1], row[2], row[3], row[4], row[5], row[6]};
}

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
                   postgres.Query(absl::StrCat("SELECT ", kProvenance,
                                               ", p.provenance_id FROM provenances p JOIN nodes n "
                                               "USING (node_id) ORDER BY p.provenance_id")));
  std::vector<Numbered<Provenance>> all;
  for (const postgres::Row row : rows) all.push_back({row[7], ReadProvenance(row)});
  return all;
}

absl::StatusOr<std::pair<int64_t, int64_t>> SumLookups(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT COALESCE(SUM(lookups), 0)::bigint, "
                                  "COALESCE(SUM(hits), 0)::bigint FROM nodes WHERE "
                                  "daemon_start_time IS NOT NULL AND forget_time IS NULL"));
  return std::pair<int64_t, int64_t>(rows[0][0], rows[0][1]);
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

absl::StatusOr<int64_t> CountReportBytes(postgres::Connection& postgres,
                                         const ReportSelection& selection) {
  return postgres.QueryValue<int64_t>(
      absl::StrCat("SELECT COALESCE(SUM(length(report_rows)), 0) FROM pooled WHERE ", kSelected),
      {selection.environments, selection.problems});
}

absl::Status ReadReportGroups(
    postgres::Connection& postgres, const ReportSelection& selection,
    const std::function<absl::Status(int64_t, int64_t, std::string_view)>& take) {
  return postgres.Pages(
      absl::StrCat("SELECT environment_id::text, problem_id::text, report_rows FROM pooled WHERE ",
                   kSelected, " ORDER BY pooled.environment_id, pooled.problem_id"),
      {selection.environments, selection.problems}, kGroupPage,
      [&](const postgres::Result& rows) -> absl::Status {
        for (const postgres::Row row : rows) {
          RETURN_IF_ERROR(take(row[0], row[1], row[2].bytes()));
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<std::vector<Numbered<std::string>>> ListMeasuringNodes(
    postgres::Connection& postgres) {
  return ReadTexts(postgres,
                   "SELECT MAX(node_id), name FROM nodes WHERE node_id IN (SELECT node_id FROM "
                   "evidence WHERE current AND NOT relayed) GROUP BY name ORDER BY name");
}

absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const std::string& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take) {
  return postgres.Pages(
      absl::StrCat("SELECT DISTINCT ON (v.text COLLATE \"C\", q.text COLLATE \"C\") ", kProvenance,
                   ", e.payload, v.text, v.gpu_model FROM evidence e JOIN environments v USING "
                   "(environment_id) JOIN problems q USING (problem_id) JOIN provenances p USING "
                   "(provenance_id) JOIN nodes n ON n.node_id = e.node_id WHERE n.name = $1 AND "
                   "e.current AND NOT e.relayed ORDER BY v.text COLLATE \"C\", q.text COLLATE "
                   "\"C\", e.node_id DESC"),
      {node}, kNodePage, [&](const postgres::Result& rows) -> absl::Status {
        for (const postgres::Row row : rows) {
          absl::StatusOr<TuningRecord> stored = ReadPayload(row[7], row[8], row[9]);
          if (!stored.ok()) continue;
          stored->tuning.provenance = ReadProvenance(row);
          RETURN_IF_ERROR(take(stored->tuning, stored->environment));
        }
        return absl::OkStatus();
      });
}

}  // namespace convtune::db::fleet
