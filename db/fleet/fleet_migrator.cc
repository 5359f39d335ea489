#include "db/fleet/fleet_migrator.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// Tables in which agents write what their nodes say, measure and tune. In the
// others stands what operators decide, and what the tables are.
constexpr char kNodeTables[] =
    "environments, problems, nodes, node_epochs, node_devices, provenances, evidence, pooled, "
    "pool_queue, pooled_payloads, batches, tasks, task_failures, wanted, upkeep";
constexpr char kDecisionTables[] = "releases, release_choices, pins, bans";

absl::Status GrantRole(postgres::Connection& postgres, const std::string& field,
                       const std::string& role, const std::string& tables) {
  if (role.empty()) return absl::OkStatus();
  if (!postgres::IsName(role)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": must be ", postgres::kNameRule, ", is \"", role, "\""));
  }
  ASSIGN_OR_RETURN(const bool there,
                   postgres.QueryValue<bool>(
                       "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", {role}));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  if (!there) {
    RETURN_IF_ERROR(postgres.Execute(absl::StrCat("CREATE ROLE ", role, " NOLOGIN")));
  }
  RETURN_IF_ERROR(postgres.Execute(
      absl::StrCat("GRANT USAGE ON SCHEMA ", postgres.schema(), " TO ", role,
                   "; GRANT SELECT ON ALL TABLES IN ", "SCHEMA ", postgres.schema(), " TO ", role,
                   "; GRANT INSERT, UPDATE, DELETE ON ", tables, " TO ", role)));
  return transaction.Commit();
}

// The oldest schema that the statements of this program run on, so that nodes can be
// upgraded before the database.
constexpr int kOldestUsable = 1;

// OK if programs of this version can use a database of that later one.
absl::Status CheckNewer(postgres::Connection& postgres, int version) {
  const int known = sqlite::LatestVersion(AllFleetMigrations());
  ASSIGN_OR_RETURN(const postgres::Result row,
                   postgres.Query("SELECT compatible_version FROM fleet"));
  if (!row.empty() && int{row[0][0]} <= known) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the fleet's database has schema version ",
                                                    version, ", this program knows version ", known,
                                                    ": use a newer convtune-fleet"));
}

}  // namespace

absl::StatusOr<int> FleetSchemaVersion(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result table,
                   postgres.Query("SELECT to_regclass('schema_migrations') IS NOT NULL, EXISTS "
                                  "(SELECT 1 FROM pg_namespace WHERE nspname = $1 AND NOT "
                                  "has_schema_privilege(oid, 'USAGE')), session_user, "
                                  "to_regclass('report_groups') IS NOT NULL",
                                  {postgres.schema()}));
  // A schema that one may not look into looks empty.
  if (table[0][1]) {
    return absl::PermissionDeniedError(
        absl::StrCat("the database's user ", std::string(table[0][2]),
                     " has no rights in the schema ", postgres.schema(), postgres::kHowToGrant));
  }
  // No release has had this table: version 1 was another schema before the first one.
  if (table[0][3]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the schema ", postgres.schema(),
        " was made by a build before 0.1.0: drop it and run `convtune-fleet migrate`"));
  }
  if (!table[0][0]) return 0;
  return postgres.QueryValue<int>("SELECT COALESCE(MAX(version), 0) FROM schema_migrations");
}

absl::Status CheckFleetSchema(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const int version, FleetSchemaVersion(postgres));
  if (version > sqlite::LatestVersion(AllFleetMigrations())) return CheckNewer(postgres, version);
  if (version >= kOldestUsable) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the fleet's database has schema version ",
                                                    version, ", this program needs ", kOldestUsable,
                                                    ": run `convtune-fleet migrate`"));
}

absl::Status GrantFleetRoles(postgres::Connection& postgres, const FleetRoles& roles) {
  RETURN_IF_ERROR(GrantRole(postgres, "--agent-role", roles.agents, kNodeTables));
  return GrantRole(postgres, "--operator-role", roles.operators,
                   absl::StrCat(kNodeTables, ", ", kDecisionTables));
}

absl::StatusOr<int> MigrateFleet(postgres::Connection& postgres) {
  int applied = 0;
  for (const sqlite::Migration& migration : AllFleetMigrations()) {
    ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
    RETURN_IF_ERROR(postgres.Execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('convtune fleet migration', 0))"));
    RETURN_IF_ERROR(
        postgres.Execute(absl::StrCat("CREATE SCHEMA IF NOT EXISTS ", postgres.schema())));
    RETURN_IF_ERROR(postgres.Execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT "
        "NULL, apply_time timestamptz NOT NULL DEFAULT now())"));
    ASSIGN_OR_RETURN(const int version, FleetSchemaVersion(postgres));
    if (version > sqlite::LatestVersion(AllFleetMigrations())) {
      RETURN_IF_ERROR(CheckNewer(postgres, version));
    }
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
