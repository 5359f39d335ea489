#include "db/maintenance.h"

#include <unistd.h>

#include <utility>

#include "db/file_util.h"
#include "db/tables.h"
#include "db/transaction.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

constexpr size_t kMostProblems = 100;
// Tunings that lose their samples in one transaction.
constexpr int kCapBatch = 16;

void AddProblem(StoreCheck* check, std::string problem) {
  if (check->problems.size() < kMostProblems) {
    check->problems.push_back(std::move(problem));
  }
}

absl::Status CheckStructure(const Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(Statement statement,
                   database.Prepare(Concat("PRAGMA integrity_check(", kMostProblems, ")")));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    if (statement.Text(0) != "ok") {
      AddProblem(check, std::string(statement.Text(0)));
    }
  }
}

absl::Status CheckForeignKeys(const Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(Statement statement, database.Prepare("PRAGMA foreign_key_check"));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    AddProblem(check, Concat(statement.Text(0), " row ", statement.Int(1), ": no row of ",
                             statement.Text(2), " that it refers to"));
  }
}

absl::Status CheckRows(const Database& database, const Table& table, StoreCheck* check) {
  ASSIGN_OR_RETURN(Statement statement, database.Prepare(Concat("SELECT ", table.SelectList("t"),
                                                                " FROM ", table.name, " t")));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    ++check->rows_checked;
    if (!RowReader(table, statement).ChecksumMatches()) {
      AddProblem(check, Concat(table.name, " row (", table.columns[0], " ", statement.Text(0), ", ",
                               table.columns[1], " ",
                               table.columns[1] == "digest" ? "" : statement.Text(1),
                               "): the checksum does not match"));
    }
  }
}

absl::Status CheckCandidateCounts(const Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(
      Statement statement,
      database.Prepare("SELECT tuning_id, problem_text FROM tunings t WHERE candidate_count <> "
                       "(SELECT COUNT(*) FROM candidates c WHERE c.tuning_id = t.tuning_id)"));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    AddProblem(check, Concat("tunings row (tuning ", statement.Int(0), ", ", statement.Text(1),
                             "): a candidate is missing"));
  }
}

absl::Status CheckAll(Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(const Transaction transaction, Transaction::BeginRead(database));
  RETURN_IF_ERROR(CheckStructure(database, check));
  RETURN_IF_ERROR(CheckForeignKeys(database, check));
  for (const Table* table : ChecksummedTables()) {
    RETURN_IF_ERROR(CheckRows(database, *table, check));
  }
  return CheckCandidateCounts(database, check);
}

}  // namespace

absl::StatusOr<StoreCheck> CheckDatabase(Database& database) {
  StoreCheck check;
  const absl::Status status = CheckAll(database, &check);
  if (absl::IsDataLoss(status)) {
    // The damage that the check looks for may also stop it.
    AddProblem(&check, std::string(status.message()));
  } else if (!status.ok()) {
    return status;
  }
  return check;
}

absl::StatusOr<int64_t> BackupDatabase(Database& database, const std::string& path) {
  if (!path.starts_with("/") || path.ends_with("/")) {
    return absl::InvalidArgumentError(
        Concat("path: must be the absolute path of a file, is \"", path, "\""));
  }
  const std::string folder = DirectoryOf(path);
  if (access(folder.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(
        Concat("path: must be in a folder that exists, is \"", path, "\""));
  }
  if (FileSize(path).has_value()) {
    return absl::AlreadyExistsError(Concat("path: must not exist, but \"", path, "\" does"));
  }
  TemporaryFile partial(Concat(path, ".partial-", getpid()));
  // What a backup that was killed left behind under the same process id.
  unlink(partial.path().c_str());
  ASSIGN_OR_RETURN(Statement statement, database.Prepare("VACUUM INTO ?"));
  statement.BindText(1, partial.path());
  RETURN_IF_ERROR(statement.Run());
  RETURN_IF_ERROR(SyncPath(partial.path()));
  const absl::Status renamed = RenameNoReplace(partial.path(), path);
  if (absl::IsAlreadyExists(renamed)) {
    return absl::AlreadyExistsError(Concat("path: must not exist, but \"", path, "\" does"));
  }
  RETURN_IF_ERROR(renamed);
  partial.Keep();
  RETURN_IF_ERROR(SyncPath(folder));
  return FileSize(path).value_or(0);
}

absl::StatusOr<int64_t> ThinSamples(Database& database, absl::Time before) {
  ASSIGN_OR_RETURN(Statement statement,
                   database.Prepare("DELETE FROM samples WHERE position >= ? AND tuning_id IN "
                                    "(SELECT tuning_id FROM tunings WHERE tune_time_us < ?)"));
  statement.BindInt(1, kCandidatesThatKeepSamples);
  statement.BindInt(2, absl::ToUnixMicros(before));
  RETURN_IF_ERROR(statement.Run());
  return database.Changes();
}

absl::Status EnforceSizeCap(Database& database, int64_t max_bytes) {
  ASSIGN_OR_RETURN(int64_t used, database.UsedBytes());
  if (used <= max_bytes) {
    return absl::OkStatus();
  }
  int64_t dropped = 0;
  while (used > max_bytes - max_bytes / 10) {
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    ASSIGN_OR_RETURN(
        Statement statement,
        database.Prepare("DELETE FROM samples WHERE tuning_id IN (SELECT tuning_id FROM tunings t "
                         "WHERE EXISTS (SELECT 1 FROM samples s WHERE s.tuning_id = t.tuning_id) "
                         "ORDER BY t.tune_time_us LIMIT ?)"));
    statement.BindInt(1, kCapBatch);
    RETURN_IF_ERROR(statement.Run());
    const int64_t rows = database.Changes();
    RETURN_IF_ERROR(transaction.Commit());
    if (rows == 0) {
      break;
    }
    dropped += rows;
    ASSIGN_OR_RETURN(used, database.UsedBytes());
  }
  return dropped > 0 ? ReleaseFreePages(database) : absl::OkStatus();
}

absl::Status ReleaseFreePages(Database& database) {
  return database.Execute("PRAGMA incremental_vacuum");
}

}  // namespace convtune
