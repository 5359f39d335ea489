#include "db/fleet/reports.h"

#include "proto/base/status_macros.h"

namespace convtune::db::fleet {

absl::StatusOr<std::vector<NumberedEnvironment>> ListFleetEnvironments(
    postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT environment_id, text, gpu_model "
                                  "FROM environments ORDER BY text"));
  std::vector<NumberedEnvironment> all;
  for (int row = 0; row < rows.rows(); ++row) {
    ASSIGN_OR_RETURN(Environment environment, Environment::Parse(rows.Text(row, 1)));
    environment.gpu_model = rows.Text(row, 2);
    all.push_back({rows.Int(row, 0), rows.Text(row, 1), std::move(environment)});
  }
  return all;
}

absl::StatusOr<std::vector<NumberedProblem>> ListTunedProblems(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT problem_id, text FROM problems WHERE problem_id IN "
                                  "(SELECT problem_id FROM report_groups) ORDER BY text"));
  std::vector<NumberedProblem> all;
  for (int row = 0; row < rows.rows(); ++row) all.push_back({rows.Int(row, 0), rows.Text(row, 1)});
  return all;
}

absl::StatusOr<std::vector<NumberedProvenance>> ListProvenances(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT p.provenance_id, n.name, p.gpu_uuid, p.driver_version, "
                                  "p.cuda_version, p.memory_bytes, p.cublaslt_build, p.nvrtc_build "
                                  "FROM provenances p JOIN nodes n "
                                  "USING (node_id) ORDER BY p.provenance_id"));
  std::vector<NumberedProvenance> all;
  for (int row = 0; row < rows.rows(); ++row) {
    NumberedProvenance each;
    each.id = rows.Int(row, 0);
    each.node = rows.Text(row, 1);
    each.provenance.node = each.node;
    each.provenance.gpu_uuid = rows.Text(row, 2);
    each.provenance.driver_version = rows.Text(row, 3);
    each.provenance.cuda_version = rows.Text(row, 4);
    each.provenance.memory_bytes = rows.Int(row, 5);
    each.provenance.cublaslt_build = rows.Text(row, 6);
    each.provenance.nvrtc_build = rows.Text(row, 7);
    all.push_back(std::move(each));
  }
  return all;
}

absl::StatusOr<FleetLookups> SumLookups(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result row,
                   postgres.Query("SELECT COUNT(*), COALESCE(SUM(lookups), 0)::bigint, "
                                  "COALESCE(SUM(hits), 0)::bigint FROM nodes WHERE "
                                  "daemon_start_time IS NOT NULL"));
  return FleetLookups{row.Int(0, 0), row.Int(0, 1), row.Int(0, 2)};
}

absl::StatusOr<std::vector<FleetWanted>> ListFleetWanted(postgres::Connection& postgres,
                                                         int64_t limit) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT q.text, e.text, SUM(w.misses)::bigint, COUNT(*) FROM wanted w JOIN "
                     "problems q USING (problem_id) JOIN environments e USING (environment_id) "
                     "GROUP BY q.text, e.text ORDER BY 3 DESC, 1, 2 LIMIT $1",
                     postgres::Params().Int(limit)));
  std::vector<FleetWanted> all;
  for (int row = 0; row < rows.rows(); ++row) {
    all.push_back({rows.Text(row, 0), rows.Text(row, 1), rows.Int(row, 2),
                   static_cast<int>(rows.Int(row, 3))});
  }
  return all;
}

absl::StatusOr<int64_t> CountReportRows(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result row,
                   postgres.Query("SELECT COALESCE(SUM(row_count), 0)::bigint FROM report_groups"));
  return row.Int(0, 0);
}

absl::Status ReadReportGroups(postgres::Connection& postgres,
                              const std::vector<int64_t>& environments,
                              const std::vector<int64_t>& problems,
                              const std::function<absl::Status(const ReportGroup&)>& take) {
  std::string sql = "SELECT environment_id, problem_id, rows FROM report_groups";
  postgres::Params params;
  if (!environments.empty() || !problems.empty()) {
    sql +=
        " WHERE (cardinality($1::integer[]) = 0 OR environment_id = ANY($1)) AND "
        "(cardinality($2::integer[]) = 0 OR problem_id = ANY($2))";
    params.Ints(environments).Ints(problems);
  }
  return postgres.Stream(sql, params, [&](const postgres::BinaryRow& row) {
    return take({row.Int32(0), row.Int32(1), row.Bytes(2)});
  });
}

}  // namespace convtune::db::fleet
