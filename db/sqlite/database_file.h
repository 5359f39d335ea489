// OpenDatabaseFile opens the daemon's database: it checks whose the file is, whether
// it is sound, and which schema it has.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "proto/base/clock.h"

namespace convtune::db::sqlite {

struct Migration {
  int version;       // the schema version that it leads to
  const char* name;  // of its file
  const char* sql;   // rows that it changes get their checksums by row_checksum (database.h)
};

// In order, from version 1 without a gap. Made from db/sqlite/migrations/*.sql.
std::span<const Migration> AllMigrations();

// The version that the last one leads to.
inline int LatestVersion(std::span<const Migration> migrations) {
  return migrations.empty() ? 0 : migrations.back().version;
}

// Applies what the file lacks, each migration in a transaction of its own together with its
// version number. Forward only. REQUIRES: the file is not newer; no transaction is open.
absl::Status Migrate(Database& database, std::span<const Migration> migrations);

struct DatabaseFileOptions {
  std::string path;
  const Clock* clock = nullptr;  // for the name of a file that is put aside
  // The reason for which the file is known to be damaged, although opening it would not
  // show the damage. The file is then put aside. Empty: no damage is known.
  std::string damage;
  // The schema that the file is brought to.
  std::span<const Migration> migrations = AllMigrations();
  // Never write; see OpenDatabaseFile.
  bool read_only = false;
  // Is told, in words, what was done to a damaged file, what is migrated, or why
  // nothing can be written.
  std::function<void(const std::string&)> notice;
};

struct DatabaseFile {
  std::unique_ptr<Database> writer;  // null: read-only
  std::unique_ptr<Database> reader;
  Database::Access reader_access = Database::Access::kReadOnly;
};

// Makes the file, or opens it, checks it after an unclean stop and migrates it. Before
// the first migration of a file it keeps a copy of it as `<path>.schema-<its version>`,
// unless there is one, and says so. Without that copy nothing is migrated: where the
// disk has no room for it, RESOURCE_EXHAUSTED, and the file is as it was.
//
// A file that is damaged or no database is renamed to
// `<path>.corrupt-<UTC time>`, with its log, and a new one started. One of
// another application or of a newer schema gives FAILED_PRECONDITION and is
// left as it is. Where the disk is read-only or full, an existing file is
// opened for reading alone, as it is; with `read_only` and no file, nothing is
// made and there is nothing to read.
absl::StatusOr<DatabaseFile> OpenDatabaseFile(const DatabaseFileOptions& options);

// Files that were put aside for the one at `path`, with their logs, in order; none where the folder
// cannot be read.
std::vector<std::string> ListPutAside(const std::string& path);

// Writes a copy of the database as of the last commit, complete and synced or not
// there, which those may read who may read the database. ALREADY_EXISTS: there is such
// a file. `check` gets the path of the copy before it has its own name; if it returns an error
// there is no copy.
absl::Status CopyDatabaseFile(
    const Database& database, const std::string& path,
    const std::function<absl::Status(const std::string& partial)>& check = nullptr);

}  // namespace convtune::db::sqlite
