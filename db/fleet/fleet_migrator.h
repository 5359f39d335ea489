// MigrateFleet brings the fleet's database to the schema of this program. Forward
// only.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/fleet/postgres.h"
#include "db/sqlite/migrator.h"

namespace convtune::db::fleet {

// In order, from version 1 without a gap. Made from db/fleet/migrations/*.sql.
std::span<const sqlite::Migration> AllFleetMigrations();

// 0: nothing was ever migrated.
absl::StatusOr<int> FleetSchemaVersion(Postgres& postgres);

// FAILED_PRECONDITION, naming both versions, unless the database has exactly the
// schema that this program knows.
absl::Status CheckFleetSchema(Postgres& postgres);

// Makes the schema if need be and applies what the database lacks, each
// migration in a transaction of its own; who migrates at the same time waits.
// Returns how many were applied. FAILED_PRECONDITION: it is newer.
absl::StatusOr<int> MigrateFleet(Postgres& postgres);

}  // namespace convtune::db::fleet
