#include "db/fleet/fleet_migrator.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// The rights of a role beside reading everything, each in the words of a GRANT. Agents add rows and
// change rows of their own nodes; the tables' policies refuse those of other nodes.
constexpr const char* kAgentRights[] = {
    "INSERT ON environments, problems, nodes, node_epochs, node_devices, provenances, evidence, "
    "wanted, batches, tasks, task_failures",
    "UPDATE ON node_epochs, node_devices",
    // Not the name, which a distrust is of.
    "UPDATE (last_seen, agent_version, daemon_version, daemon_start_time, clock_offset_us, "
    "tuning_count, lookups, hits, outbox_depth, outbox_lag_seconds, outbox_dropped, "
    "duplicate_count, release_number, unapplied_pins, pin_error, unapplied_bans, ban_error, "
    "release_missing, release_extra, last_error, login, release_error, heeded_bans) ON nodes",
    "UPDATE (current, payload) ON evidence",
    "UPDATE (state, failures, lost_leases, node_id, lease_token, lease_until, not_before, "
    "end_time, nodes_wanted, tuned_by) ON tasks",
    "DELETE ON wanted",
    "EXECUTE ON FUNCTION queue_pooling, thin_is_due, thin",
};
// Operators also write decisions, and the pooled tunings that releases are made of.
constexpr const char* kOperatorRights[] = {
    "INSERT, UPDATE ON releases, pins, bans, distrusts",
    "EXECUTE ON FUNCTION forget_node",
    "INSERT ON release_choices, pooled_payloads",
    "INSERT, UPDATE, DELETE ON pooled",
    "UPDATE, DELETE ON pool_queue",
};

// Gives the role these rights in place of those that it had.
absl::Status GrantRole(postgres::Connection& postgres, const std::string& field,
                       const std::string& role, bool operators) {
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
  const std::string schema = absl::StrCat(" IN SCHEMA ", postgres.schema());
  std::string sql = absl::StrCat("GRANT USAGE ON SCHEMA ", postgres.schema(), " TO ", role,
                                 "; REVOKE ALL ON ALL TABLES", schema, " FROM ", role,
                                 "; REVOKE ALL ON ALL FUNCTIONS", schema, " FROM ", role,
                                 "; GRANT SELECT ON ALL TABLES", schema, " TO ", role);
  for (const char* const right : kAgentRights) {
    absl::StrAppend(&sql, "; GRANT ", right, " TO ", role);
  }
  for (const char* const right : kOperatorRights) {
    if (operators) absl::StrAppend(&sql, "; GRANT ", right, " TO ", role);
  }
  RETURN_IF_ERROR(postgres.Execute(sql));
  return transaction.Commit();
}

// The oldest schema that the statements of this program run on, so that nodes can be
// upgraded before the database.
constexpr int kOldestUsable = 2;

// nextval never goes back, whoever else takes numbers meanwhile.
constexpr char kMoveSequencesOn[] = R"(
DO $$ DECLARE move text; BEGIN
  FOR move IN SELECT format('SELECT COUNT(nextval(%1$L)) FROM %1$s, generate_series(last_value + '
    'is_called::int, (SELECT MAX(%2$I) FROM %3$s))', pg_get_serial_sequence(c.oid::regclass::text,
    a.attname), a.attname, c.oid::regclass) FROM pg_class c JOIN pg_attribute a ON a.attrelid =
    c.oid WHERE c.relnamespace = current_schema()::regnamespace AND a.attidentity <> '' LOOP
    EXECUTE move;
  END LOOP;
END $$)";

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
                                  "has_schema_privilege(oid, 'USAGE')), session_user",
                                  {postgres.schema()}));
  // A schema that one may not look into looks empty.
  if (table[0][1]) {
    return absl::PermissionDeniedError(
        absl::StrCat("the database's user ", std::string(table[0][2]),
                     " has no rights in the schema ", postgres.schema(), postgres::kHowToGrant));
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
  // The rights of an earlier version would stay.
  ASSIGN_OR_RETURN(
      const postgres::Result known,
      postgres.Query("SELECT DISTINCT r.rolname, has_table_privilege(r.oid, 'releases', 'INSERT') "
                     "FROM pg_class c, aclexplode(c.relacl) a, pg_roles r WHERE c.oid = "
                     "'evidence'::regclass AND a.privilege_type = 'INSERT' AND a.grantee <> "
                     "c.relowner AND r.oid = a.grantee"));
  for (const postgres::Row row : known) {
    const std::string role = row[0];
    if (role == roles.agents || role == roles.operators) continue;
    RETURN_IF_ERROR(GrantRole(postgres, "role", role, row[1]));
  }
  if (!roles.agents.empty()) {
    RETURN_IF_ERROR(GrantRole(postgres, "--agent-role", roles.agents, /*operators=*/false));
  }
  if (roles.operators.empty()) return absl::OkStatus();
  return GrantRole(postgres, "--operator-role", roles.operators, /*operators=*/true);
}

absl::StatusOr<int> MigrateFleet(postgres::Connection& postgres,
                                 std::span<const sqlite::Migration> migrations) {
  int applied = 0;
  for (const sqlite::Migration& migration : migrations) {
    ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
    RETURN_IF_ERROR(postgres.Execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('convtune fleet migration', 0))"));
    RETURN_IF_ERROR(
        postgres.Execute(absl::StrCat("CREATE SCHEMA IF NOT EXISTS ", postgres.schema())));
    RETURN_IF_ERROR(postgres.Execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT "
        "NULL, apply_time timestamptz NOT NULL DEFAULT now())"));
    ASSIGN_OR_RETURN(const int version, FleetSchemaVersion(postgres));
    if (version > sqlite::LatestVersion(migrations)) {
      RETURN_IF_ERROR(CheckNewer(postgres, version));
    }
    if (version > 0 && version < migrations.front().version) {
      return absl::FailedPreconditionError(
          absl::StrCat("the fleet's database has schema version ", version,
                       ", which was never released: drop the schema ", postgres.schema(),
                       ", and nodes fill it again"));
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
  RETURN_IF_ERROR(postgres.Execute(kMoveSequencesOn));
  return applied;
}

}  // namespace convtune::db::fleet
