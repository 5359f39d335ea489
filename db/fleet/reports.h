// Functions that read rows of the fleet's database for reports.
// db/fleet/migrations/README.md describes the tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/postgres/connection.h"
#include "proto/model/environment.h"

namespace convtune::db::fleet {

// The provenance of a node's measurements, which names the node, with its number.
struct NumberedProvenance {
  int64_t id = 0;
  Provenance provenance;
};
absl::StatusOr<std::vector<NumberedProvenance>> ListProvenances(postgres::Connection& postgres);

struct FleetLookups {
  int64_t nodes = 0;  // that have ever said it
  int64_t lookups = 0;
  int64_t hits = 0;
};
absl::StatusOr<FleetLookups> SumLookups(postgres::Connection& postgres);

struct FleetWanted {
  std::string problem_text;
  std::string environment_text;
  int64_t misses = 0;
  int nodes = 0;
};
// Most wanted first.
absl::StatusOr<std::vector<FleetWanted>> ListFleetWanted(postgres::Connection& postgres,
                                                         int64_t limit);

struct ReportGroup {
  std::string environment_text;
  std::string gpu_model;
  std::string problem_text;
  std::string_view rows;  // as PooledTuning::report_rows was; until the next
};
// Rows that are in all groups.
absl::StatusOr<int64_t> CountReportRows(postgres::Connection& postgres);
// All groups, by environment and problem. An error of `take` ends it.
absl::Status ReadReportGroups(postgres::Connection& postgres,
                              const std::function<absl::Status(const ReportGroup&)>& take);

}  // namespace convtune::db::fleet
