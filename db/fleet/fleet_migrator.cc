#include "db/fleet/fleet_migrator.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

absl::Status Newer(int version) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the fleet's database has schema version ", version, ", this program knows version ",
      sqlite::LatestVersion(AllFleetMigrations()), ": use a newer convtune-fleet"));
}

}  // namespace

absl::StatusOr<int> FleetSchemaVersion(Postgres& postgres) {
  ASSIGN_OR_RETURN(const PgResult table,
                   postgres.Query("SELECT to_regclass('schema_migrations') IS NOT NULL"));
  if (!table.Bool(0, 0)) return 0;
  ASSIGN_OR_RETURN(const PgResult version,
                   postgres.Query("SELECT COALESCE(MAX(version), 0) FROM schema_migrations"));
  return static_cast<int>(version.Int(0, 0));
}

absl::Status CheckFleetSchema(Postgres& postgres) {
  ASSIGN_OR_RETURN(const int version, FleetSchemaVersion(postgres));
  const int known = sqlite::LatestVersion(AllFleetMigrations());
  if (version > known) return Newer(version);
  if (version == known) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the fleet's database has schema version ",
                                                    version, ", this program needs ", known,
                                                    ": run `convtune-fleet migrate`"));
}

absl::StatusOr<int> MigrateFleet(Postgres& postgres) {
  int applied = 0;
  for (const sqlite::Migration& migration : AllFleetMigrations()) {
    ASSIGN_OR_RETURN(PgTransaction transaction, PgTransaction::Begin(postgres));
    RETURN_IF_ERROR(postgres.Execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('convtune fleet migration', 0))"));
    RETURN_IF_ERROR(
        postgres.Execute(absl::StrCat("CREATE SCHEMA IF NOT EXISTS ", postgres.schema())));
    RETURN_IF_ERROR(postgres.Execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT "
        "NULL, apply_time timestamptz NOT NULL DEFAULT now())"));
    ASSIGN_OR_RETURN(const int version, FleetSchemaVersion(postgres));
    if (version > sqlite::LatestVersion(AllFleetMigrations())) return Newer(version);
    if (migration.version > version) {
      RETURN_IF_ERROR(postgres.Execute(migration.sql));
      RETURN_IF_ERROR(
          postgres.Execute(absl::StrCat("INSERT INTO schema_migrations (version, name) VALUES (",
                                        migration.version, ", '", migration.name, "')")));
      ++applied;
    }
    RETURN_IF_ERROR(transaction.Commit());
  }
  return applied;
}

}  // namespace convtune::db::fleet
