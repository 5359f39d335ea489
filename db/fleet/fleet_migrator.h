// MigrateFleet brings the fleet's database to the schema of this program. Forward
// only.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/postgres/connection.h"
#include "db/sqlite/database_file.h"

namespace convtune::db::fleet {

// In order, without a gap. The first makes the tables of version 2, which is the oldest that was
// released. Made from db/fleet/migrations/*.sql.
std::span<const sqlite::Migration> AllFleetMigrations();

// 0: nothing was ever migrated. PERMISSION_DENIED: the schema is not for the
// connection's user.
absl::StatusOr<int> FleetSchemaVersion(postgres::Connection& postgres);

// FAILED_PRECONDITION, naming both versions, where the schema is older than any that
// this program can use, or newer and not compatible with it; and as FleetSchemaVersion.
absl::Status CheckFleetSchema(postgres::Connection& postgres);

// Makes the schema if need be and applies what the database lacks, each
// migration in a transaction of its own; who migrates at the same time waits.
// Moves on the sequences that a partial restore left behind their tables. Returns how many were
// applied. FAILED_PRECONDITION: the schema is newer, and not compatible with this program.
absl::StatusOr<int> MigrateFleet(
    postgres::Connection& postgres,
    std::span<const sqlite::Migration> migrations = AllFleetMigrations());

// PostgreSQL's roles; empty: none.
struct FleetRoles {
  std::string agents;     // read all, write what their own nodes say
  std::string operators;  // also decide: releases, pins and bans
};

// Makes those roles that are not there, without a login, and gives them their rights
// on the tables that there are now, and no others. Roles that an earlier call gave rights get those
// of this version, too. INVALID_ARGUMENT: not a name of a role; PERMISSION_DENIED: the connection's
// user may not.
absl::Status GrantFleetRoles(postgres::Connection& postgres, const FleetRoles& roles);

}  // namespace convtune::db::fleet
