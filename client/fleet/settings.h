// PostgresFlags say where the fleet's database is.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "db/postgres/connection.h"

namespace CLI {
class App;
}

namespace convtune::fleet {

// Value type, but its address is registered.
struct PostgresFlags {
  std::string conninfo;
  std::string file;
  std::string schema = "convtune";
  std::string timeout = "60s";

  // Adds --postgres, --postgres-file, --schema and --postgres-timeout, which also
  // come from CONVTUNE_POSTGRES, CONVTUNE_POSTGRES_FILE, CONVTUNE_FLEET_SCHEMA and
  // CONVTUNE_POSTGRES_TIMEOUT. *this must outlive `app`.
  void Register(CLI::App& app);
  // The connection string is the file's, which nobody but its owner (and, for a
  // reading group, root's files) may read or change; or the flag's, which must
  // not have a password, since a command line can be read by everybody.
  // INVALID_ARGUMENT names the flag and the rule.
  absl::StatusOr<db::postgres::Connection::Options> Resolve() const;
};

}  // namespace convtune::fleet
