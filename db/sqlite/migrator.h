// Migrate brings a database file to the schema of this program. Forward only.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "db/sqlite/database.h"

namespace convtune::db::sqlite {

struct Migration {
  int version;       // the schema version that it leads to
  const char* name;  // of its file
  const char* sql;
  // Runs behind the SQL in its transaction, for what SQL cannot do, such as
  // checksums of rows that change; null: nothing.
  absl::Status (*step)(Database&) = nullptr;
};

// In order, from version 1 without a gap. Made from db/sqlite/migrations/*.sql.
std::span<const Migration> AllMigrations();

// The version that the last one leads to.
int LatestVersion(std::span<const Migration> migrations);

// FAILED_PRECONDITION naming both versions if the file is newer than
// `migrations` and its compatible version says that this program cannot use
// it. Changes nothing.
absl::Status CheckVersion(const Database& database, std::span<const Migration> migrations);

// Applies what the file lacks, each migration in a transaction of its own
// together with its version number. REQUIRES: CheckVersion() is OK; no
// transaction is open.
absl::Status Migrate(Database& database, std::span<const Migration> migrations);

}  // namespace convtune::db::sqlite
