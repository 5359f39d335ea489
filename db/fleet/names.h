// FleetNames makes the rows of environments and problems in the fleet's database. Statements name
// both by their texts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/postgres/connection.h"
#include "proto/model/environment.h"

namespace convtune::db::fleet {

// In SQL, of the row of `fleet`: names these tables, and no others. It changes where they are made
// anew or restored.
inline constexpr char kFleetIdSql[] = "fleet_id || ' ' || fleet.tableoid";

// In SQL, a relation of a WITH: how many nodes must agree on a choice in each environment. Where
// more than three nodes tune these are two, so that no GPU decides for the others alone.
inline constexpr char kNodesWantedSql[] =
    "wanting AS (SELECT environment_id, CASE WHEN COUNT(DISTINCT node_id) > 3 THEN 2 ELSE 1 END AS "
    "nodes FROM node_devices WHERE current AND tunes GROUP BY environment_id)";

// Remembers which database it has met first, so that numbers of its rows are not written to
// another. Not thread-safe; must not outlive the connection.
class FleetNames {
 public:
  explicit FleetNames(postgres::Connection* postgres) : postgres_(postgres) {}

  // ABORTED where the tables were made anew, or restored, since this was asked first: every number
  // of a row is another's now, or nobody's; and where the schema is meanwhile one that this program
  // cannot use (CheckFleetSchema says which).
  absl::Status CheckFleet();
  // A transaction that may write numbers of rows. ABORTED as CheckFleet.
  absl::StatusOr<postgres::Transaction> Begin();
  // kFleetIdSql of the database; empty before the first CheckFleet.
  const std::string& fleet_id() const { return fleet_id_; }

  // These make the rows that are not there, in a statement that commits at once: to be called
  // outside a transaction, so that two who meet the same names in another order cannot block each
  // other.
  absl::Status AddEnvironments(const std::vector<Environment>& environments);
  // Canonical texts; INVALID_ARGUMENT if one is no problem.
  absl::Status AddProblems(const std::vector<std::string>& texts);

 private:
  postgres::Connection* const postgres_;
  std::string fleet_id_;
};

}  // namespace convtune::db::fleet
