// Functions that read rows of the fleet's database for reports, and what one node measured, as it
// delivered it.
// db/fleet/migrations/README.md describes the tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
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

// Look-ups and hits of all nodes' daemons since each one's start.
absl::StatusOr<std::pair<int64_t, int64_t>> SumLookups(postgres::Connection& postgres);

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
// How long the selected groups are together; a group is the rows of one pooled tuning.
absl::StatusOr<int64_t> CountReportBytes(postgres::Connection& postgres,
                                         const ReportSelection& selection);
// Within a transaction: calls `take` with the numbers of the environment and the problem of each
// selected group, in their order, and with its rows as PooledTuning::report_rows has them, which
// are valid until it returns. An error of `take` ends it.
absl::Status ReadReportGroups(
    postgres::Connection& postgres, const ReportSelection& selection,
    const std::function<absl::Status(int64_t, int64_t, std::string_view)>& take);

// Names of nodes that have measured anything themselves, in order, each with the newest number of
// the name.
absl::StatusOr<std::vector<Numbered<std::string>>> ListMeasuringNodes(
    postgres::Connection& postgres);

// Within a transaction: calls `take` with each current tuning that a node of that name measured
// itself, ordered by (environment text, problem text) as a bundle has them; its provenance names
// the node. Where a forgotten node of the name measured the same problem, the later node's counts.
// Rows that break a rule are left out. An error of `take` ends it.
absl::Status ReadNodeTunings(
    postgres::Connection& postgres, const std::string& node,
    const std::function<absl::Status(const Tuning&, const Environment&)>& take);

}  // namespace convtune::db::fleet
