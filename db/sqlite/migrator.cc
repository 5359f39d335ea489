#include "db/sqlite/migrator.h"

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::sqlite {

int LatestVersion(std::span<const Migration> migrations) {
  return migrations.empty() ? 0 : migrations.back().version;
}

absl::Status CheckVersion(const Database& database, std::span<const Migration> migrations) {
  const int known = LatestVersion(migrations);
  ASSIGN_OR_RETURN(const int64_t version, database.UserVersion());
  if (version <= known) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t compatible,
                   database.QueryInt("SELECT value FROM meta WHERE key = 'compatible_version'"));
  if (compatible <= known) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(Concat(
      database.path(), ": has schema version ", version, " and needs a program that knows version ",
      compatible, "; this one knows version ", known, "; the file was left as it is"));
}

absl::Status Migrate(Database& database, std::span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const int64_t version, database.UserVersion());
  for (const Migration& migration : migrations) {
    if (migration.version <= version) {
      continue;
    }
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    RETURN_IF_ERROR(database.Execute(migration.sql));
    if (migration.step != nullptr) RETURN_IF_ERROR(migration.step(database));
    RETURN_IF_ERROR(database.SetUserVersion(migration.version));
    RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

}  // namespace convtune::db::sqlite
