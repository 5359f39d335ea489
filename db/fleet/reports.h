// Functions that read rows of the fleet's database for reports, and what one node measured, as it
// delivered it.
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
#include "proto/model/tuning/tuning.h"

namespace convtune::db::fleet {

// A value with the number of its row.
template <typename T>
struct Numbered {
  int64_t id = 0;
  T value;
};

// The provenances of measurements; each names its node.
absl::StatusOr<std::vector<Numbered<Provenance>>> ListProvenances(postgres::Connection& postgres);

struct FleetLookups {
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

// The environments and problems of pooled tunings, by text; environments with the full GPU model.
absl::StatusOr<std::vector<Numbered<Environment>>> ListPooledEnvironments(
    postgres::Connection& postgres);
absl::StatusOr<std::vector<Numbered<std::string>>> ListPooledProblems(
    postgres::Connection& postgres);

// Selects pooled tunings by the numbers of their environments and problems; of an empty list all.
struct ReportSelection {
  std::vector<int64_t> environments;
  std::vector<int64_t> problems;
};
struct ReportGroup {
  int64_t environment_id = 0;
  int64_t problem_id = 0;
  std::string_view rows;  // as PooledTuning::report_rows was; valid until `take` returns
};
// Rows that are in all of its groups.
absl::StatusOr<int64_t> CountReportRows(postgres::Connection& postgres,
                                        const ReportSelection& selection);
// All of its groups, by number. An error of `take` ends it, and the connection.
absl::Status ReadReportGroups(postgres::Connection& postgres, const ReportSelection& selection,
                              const std::function<absl::Status(const ReportGroup&)>& take);

// Names of nodes with current evidence, in order.
absl::StatusOr<std::vector<Numbered<std::string>>> ListMeasuringNodes(
    postgres::Connection& postgres);

// Within a transaction: calls `take` with each current tuning of the node, ordered by (environment
// text, problem text) as a bundle has them; its provenance names the node. Rows that break a rule
// are left out. An error of `take` ends it.
absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const Numbered<std::string>& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take);

}  // namespace convtune::db::fleet
