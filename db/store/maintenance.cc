#include "db/store/maintenance.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "db/sqlite/database_file.h"
#include "db/sqlite/file_util.h"
#include "db/sqlite/transaction.h"
#include "db/store/tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

constexpr size_t kMostFindings = 100;
// Tunings that lose their samples in one transaction.
constexpr int kCapBatch = 16;
// Tunings that are thinned at a time, for their memory.
constexpr int kThinBatch = 256;

void AddFinding(StoreCheck* check, std::string finding) {
  if (check->findings.size() < kMostFindings) {
    check->findings.push_back(std::move(finding));
  }
}

absl::Status CheckStructure(const sqlite::Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("PRAGMA integrity_check(", kMostFindings, ")")));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    if (statement.Text(0) != "ok") {
      AddFinding(check, std::string(statement.Text(0)));
    }
  }
}

absl::Status CheckForeignKeys(const sqlite::Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare("PRAGMA foreign_key_check"));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    AddFinding(check, Concat(statement.Text(0), " row ", statement.Int(1), ": no row of ",
                             statement.Text(2), " that it refers to"));
  }
}

absl::Status CheckRows(const sqlite::Database& database, const sqlite::Table& table,
                       StoreCheck* check) {
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(Concat("SELECT ", table.SelectList("t"), " FROM ", table.name, " t")));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    ++check->rows_checked;
    if (!sqlite::RowReader(table, statement).ChecksumMatches()) {
      const bool is_blob = statement.Type(1) == sqlite::ColumnType::kBlob;
      AddFinding(check,
                 Concat(table.name, " row (", table.columns[0], " ", statement.Text(0),
                        is_blob ? "" : Concat(", ", table.columns[1], " ", statement.Text(1)),
                        "): ", kBadChecksum));
    }
  }
}

// What a checksum does not tell: that the bytes are a record of this version.
absl::Status CheckRecords(const sqlite::Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(Concat("SELECT ", TuningTable().SelectList("t"), " FROM tunings t")));
  ASSIGN_OR_RETURN(sqlite::Statement samples,
                   database.Prepare(Concat("SELECT ", SamplesTable().SelectList("s"),
                                           " FROM tuning_samples s WHERE s.tuning_id = ?")));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) return absl::OkStatus();
    // CheckRows tells of rows whose checksum does not match.
    if (!sqlite::RowReader(TuningTable(), statement).ChecksumMatches()) continue;
    ASSIGN_OR_RETURN(const TuningRow row, ReadTuning(statement));
    absl::StatusOr<Tuning> tuning = DecodeTuning(row);
    absl::Status status = tuning.status();
    if (status.ok()) {
      samples.Reset();
      samples.BindInt(1, row.id);
      ASSIGN_OR_RETURN(const bool found, samples.Step());
      if (found && sqlite::RowReader(SamplesTable(), samples).ChecksumMatches()) {
        status = ReadSamples(samples, 0, &tuning->candidates);
      }
    }
    if (!status.ok()) AddFinding(check, std::string(status.message()));
  }
}

absl::Status CheckAll(sqlite::Database& database, StoreCheck* check) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  RETURN_IF_ERROR(CheckStructure(database, check));
  RETURN_IF_ERROR(CheckForeignKeys(database, check));
  for (const sqlite::Table* table : ChecksummedTables()) {
    RETURN_IF_ERROR(CheckRows(database, *table, check));
  }
  return CheckRecords(database, check);
}

}  // namespace

absl::StatusOr<StoreCheck> CheckDatabase(sqlite::Database& database) {
  StoreCheck check;
  const absl::Status status = CheckAll(database, &check);
  if (absl::IsDataLoss(status)) {
    // The damage that the check looks for may also stop it.
    AddFinding(&check, std::string(status.message()));
  } else if (!status.ok()) {
    return status;
  }
  return check;
}

absl::StatusOr<int64_t> BackupDatabase(sqlite::Database& database, const std::string& path) {
  if (!path.starts_with("/") || path.ends_with("/")) {
    return ViolationError(
        {"path", Concat("must be the absolute path of a file, is \"", path, "\"")});
  }
  const std::string folder = sqlite::DirectoryOf(path);
  if (access(folder.c_str(), X_OK) != 0) {
    return ViolationError({"path", Concat("must be in a folder that exists, is \"", path, "\"")});
  }
  const absl::Status copied = sqlite::CopyDatabaseFile(database, path);
  if (absl::IsAlreadyExists(copied)) {
    return absl::AlreadyExistsError(Concat("path: must not exist, but \"", path, "\" does"));
  }
  RETURN_IF_ERROR(copied);
  return sqlite::FileSize(path).value_or(0);
}

absl::StatusOr<int64_t> ThinSamples(sqlite::Database& database, absl::Time before) {
  ASSIGN_OR_RETURN(
      sqlite::Statement select,
      database.Prepare(Concat("SELECT ", SamplesTable().SelectList("s"),
                              " FROM tuning_samples s JOIN tunings t USING "
                              "(tuning_id) WHERE t.tune_time_us < ? AND s.candidate_count > ? AND "
                              "s.tuning_id > ? ORDER BY s.tuning_id LIMIT ?")));
  ASSIGN_OR_RETURN(sqlite::Statement update,
                   database.Prepare(SamplesTable().UpsertSql(SamplesTable().columns[0])));
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM tuning_samples WHERE tuning_id = ?"));
  int64_t thinned = 0;
  int64_t last_id = -1;
  while (true) {
    select.Reset();
    select.BindInt(1, absl::ToUnixMicros(before));
    select.BindInt(2, kCandidatesThatKeepSamples);
    select.BindInt(3, last_id);
    select.BindInt(4, kThinBatch);
    std::vector<std::pair<int64_t, std::vector<Candidate>>> batch;
    bool any = false;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, select.Step());
      if (!more) break;
      any = true;
      last_id = select.Int(0);
      // Each takes a byte at least.
      std::vector<Candidate> candidates(select.Blob(2).size());
      // Damaged ones are for the check to report.
      if (!ReadSamples(select, 0, &candidates).ok()) continue;
      batch.emplace_back(last_id, std::move(candidates));
    }
    select.Reset();
    if (!any) return thinned;
    for (auto& [id, candidates] : batch) {
      for (size_t i = kCandidatesThatKeepSamples; i < candidates.size(); ++i) {
        thinned += candidates[i].samples_ns.empty() ? 0 : 1;
        candidates[i].samples_ns.clear();
      }
      if (CandidatesWithSamples(candidates) == 0) {
        erase.BindInt(1, id);
        RETURN_IF_ERROR(erase.Run());
      } else {
        RETURN_IF_ERROR(WriteSamples(id, candidates, update));
      }
    }
  }
}

absl::Status EnforceSizeCap(sqlite::Database& database, int64_t max_bytes) {
  ASSIGN_OR_RETURN(int64_t used, database.UsedBytes());
  if (used <= max_bytes) {
    return absl::OkStatus();
  }
  int64_t dropped = 0;
  while (used > max_bytes - max_bytes / 10) {
    ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(database));
    ASSIGN_OR_RETURN(
        sqlite::Statement statement,
        database.Prepare(
            "DELETE FROM tuning_samples WHERE tuning_id IN (SELECT tuning_id FROM tunings t WHERE "
            "EXISTS (SELECT 1 FROM tuning_samples s WHERE s.tuning_id = t.tuning_id) "
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

absl::Status ReleaseFreePages(sqlite::Database& database) {
  return database.Execute("PRAGMA incremental_vacuum");
}

}  // namespace convtune::db::store
