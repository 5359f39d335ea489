// FleetNames gives environments and problems their numbers in the fleet's database.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/postgres/connection.h"
#include "proto/model/environment.h"

namespace convtune::db::fleet {

// In SQL, of the row of `fleet`: another wherever the tables were made anew, or restored.
inline constexpr char kFleetIdSql[] = "fleet_id || ' ' || fleet.tableoid";

// In SQL, a relation of a WITH: environments and how many nodes one choice there takes. One of more
// than three nodes that tune wants two, so that no GPU decides for the others alone.
inline constexpr char kNodesWantedSql[] =
    "wanting AS (SELECT environment_id, CASE WHEN COUNT(DISTINCT node_id) > 3 THEN 2 ELSE 1 END AS "
    "nodes FROM node_devices WHERE current AND tunes GROUP BY environment_id)";

// Makes rows for what is new, each in a statement of its own that commits at
// once: to be called outside a transaction, so that two who meet the same names
// in another order cannot block each other. Remembers what it has seen. Not
// thread-safe; must not outlive the connection.
class FleetNames {
 public:
  explicit FleetNames(postgres::Connection* postgres) : postgres_(postgres) {}

  // ABORTED where the tables were made anew, or restored, since this was asked first, or the
  // first number was given: every number that was given is another's now, or nobody's; and where
  // the schema is meanwhile one that this program cannot use (CheckFleetSchema says which). To be
  // asked in each transaction that writes them.
  absl::Status CheckFleet();
  // A transaction that may write numbers. ABORTED as CheckFleet.
  absl::StatusOr<postgres::Transaction> Begin();
  // kFleetIdSql of the database; empty before the first of CheckFleet.
  const std::string& fleet_id() const { return fleet_id_; }

  absl::StatusOr<int64_t> Environment(const convtune::Environment& environment);
  // Canonical texts; INVALID_ARGUMENT if one is no problem.
  absl::StatusOr<int64_t> Problem(const std::string& text);
  absl::Status AddProblems(const std::vector<std::string>& texts);

 private:
  using Ids = std::map<std::string, int64_t>;
  // Has those of `texts` in `ids` that have a row, which `select` gives with its number. Returns
  // the others.
  absl::StatusOr<std::vector<std::string>> Read(const std::vector<std::string>& texts,
                                                const char* select, Ids* ids);

  postgres::Connection* const postgres_;
  std::string fleet_id_;
  Ids environments_;
  Ids problems_;
};

}  // namespace convtune::db::fleet
