#include "db/store/maintenance.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "db/sqlite/database_file.h"
#include "db/sqlite/file_util.h"
#include "db/store/rows.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

constexpr int kMostFindings = 100;
// Tunings that lose their samples in one transaction.
constexpr int kCapBatch = 16;

void AddFinding(v1::CheckDatabaseResponse* check, std::string finding) {
  if (check->findings_size() < kMostFindings) check->add_findings(std::move(finding));
}

absl::Status CheckStructure(const sqlite::Database& database, v1::CheckDatabaseResponse* check) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("PRAGMA integrity_check(", kMostFindings, ")")));
  return statement.ForEachRow([&] {
    if (statement.Text(0) != "ok") AddFinding(check, std::string(statement.Text(0)));
  });
}

absl::Status CheckForeignKeys(const sqlite::Database& database, v1::CheckDatabaseResponse* check) {
  ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare("PRAGMA foreign_key_check"));
  return statement.ForEachRow([&] {
    AddFinding(check, Concat(statement.Text(0), " row ", statement.Int(1), ": no row of ",
                             statement.Text(2), " that it refers to"));
  });
}

absl::Status CheckRows(const sqlite::Database& database, const sqlite::Table& table,
                       v1::CheckDatabaseResponse* check) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", table.list, " FROM ", table.name)));
  return statement.ForEachRow([&] {
    check->set_rows_checked(check->rows_checked() + 1);
    if (!sqlite::ChecksumMatches(table, statement)) {
      AddFinding(check,
                 Concat(table.name, " row (", table.columns[0], " ", statement.Text(0), ", ",
                        table.columns[1], " ", statement.Text(1), "): ", sqlite::kBadChecksum));
    }
  });
}

// What a checksum does not tell: that the bytes are a record of this version.
absl::Status CheckRecords(const sqlite::Database& database, v1::CheckDatabaseResponse* check) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", sqlite::TableOf<TuningRow>().list, ", ",
                                           sqlite::TableOf<SamplesRow>().list,
                                           " FROM tunings LEFT JOIN tuning_samples "
                                           "USING (tuning_id)")));
  const int after_tuning = sqlite::TableOf<TuningRow>().width();
  return statement.ForEachRow([&] {
    const absl::StatusOr<TuningRow> row = sqlite::ReadRow<TuningRow>(statement);
    // CheckRows tells of rows whose checksum does not match.
    if (!row.ok()) return;
    absl::StatusOr<Tuning> tuning = ToTuning(*row);
    absl::Status status = tuning.status();
    const absl::StatusOr<SamplesRow> samples = sqlite::ReadRow<SamplesRow>(statement, after_tuning);
    if (status.ok() && samples.ok()) status = GetSamples(*samples, &tuning->candidates);
    if (!status.ok()) AddFinding(check, std::string(status.message()));
  });
}

absl::Status CheckAll(sqlite::Database& database, v1::CheckDatabaseResponse* check) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  RETURN_IF_ERROR(CheckStructure(database, check));
  RETURN_IF_ERROR(CheckForeignKeys(database, check));
  for (const sqlite::Table* table : ChecksummedTables()) {
    RETURN_IF_ERROR(CheckRows(database, *table, check));
  }
  return CheckRecords(database, check);
}

absl::Status CheckCopy(const std::string& path, const std::function<bool()>& stopped) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<sqlite::Database> copy,
      sqlite::Database::Open({.path = path, .access = sqlite::Database::Access::kImmutable}));
  copy->InterruptWhen(stopped);
  ASSIGN_OR_RETURN(const v1::CheckDatabaseResponse check, CheckDatabase(*copy));
  if (check.ok()) return absl::OkStatus();
  return absl::DataLossError(Concat("a copy of the database is not kept, for it is damaged (",
                                    check.findings_size(), " findings): ", check.findings(0)));
}

}  // namespace

absl::StatusOr<v1::CheckDatabaseResponse> CheckDatabase(sqlite::Database& database) {
  v1::CheckDatabaseResponse check;
  const absl::Status status = CheckAll(database, &check);
  if (absl::IsDataLoss(status)) {
    // The damage that the check looks for may also stop it.
    AddFinding(&check, std::string(status.message()));
  } else if (!status.ok()) {
    return status;
  }
  check.set_ok(check.findings().empty());
  return check;
}

absl::StatusOr<int64_t> BackupDatabase(sqlite::Database& database, const std::string& path,
                                       const std::function<bool()>& stopped) {
  if (!path.starts_with("/") || path.ends_with("/")) {
    return ViolationError(
        {"path", Concat("must be the absolute path of a file, is \"", path, "\"")});
  }
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (access(folder.c_str(), X_OK) != 0) {
    return ViolationError({"path", Concat("must be in a folder that exists, is \"", path, "\"")});
  }
  database.InterruptWhen(stopped);
  const absl::Status copied = sqlite::CopyDatabaseFile(
      database, path, [&](const std::string& partial) { return CheckCopy(partial, stopped); });
  if (absl::IsAlreadyExists(copied)) {
    return absl::AlreadyExistsError(Concat("path: must not exist, but \"", path, "\" does"));
  }
  RETURN_IF_ERROR(copied);
  return sqlite::FileSize(path).value_or(0);
}

absl::StatusOr<int64_t> ThinSamples(sqlite::Database& database, absl::Time before) {
  std::vector<int64_t> ids;
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare("SELECT s.tuning_id FROM tuning_samples s JOIN tunings t USING (tuning_id) "
                       "WHERE t.tune_time_us < ? AND s.candidate_count > ?"));
  RETURN_IF_ERROR(
      statement.Bind(absl::ToUnixMicros(before), kCandidatesThatKeepSamples).ForEachRow([&] {
        ids.push_back(statement.Int(0));
      }));
  int64_t thinned = 0;
  for (const int64_t id : ids) {
    std::vector<Candidate> candidates;
    // Damaged ones are for the check to report.
    RETURN_IF_ERROR(sqlite::ReadRows<SamplesRow>(
        database, "WHERE tuning_id = ?", [](const std::string&) {},
        [&](const SamplesRow& row) {
          candidates.resize(row.candidate_count);
          if (!GetSamples(row, &candidates).ok()) candidates.clear();
        },
        id));
    if (candidates.empty()) continue;
    for (size_t i = kCandidatesThatKeepSamples; i < candidates.size(); ++i) {
      thinned += candidates[i].samples_ns.empty() ? 0 : 1;
      candidates[i].samples_ns.clear();
    }
    const SamplesRow thin = ToSamplesRow(id, candidates);
    RETURN_IF_ERROR(thin.candidate_count > 0
                        ? sqlite::PutRow(database, thin)
                        : database.Run("DELETE FROM tuning_samples WHERE tuning_id = ?", id));
  }
  return thinned;
}

absl::Status EnforceSizeCap(sqlite::Database& database, int64_t max_bytes) {
  ASSIGN_OR_RETURN(int64_t used, database.UsedBytes());
  if (used <= max_bytes) {
    return absl::OkStatus();
  }
  int64_t dropped = 0;
  while (used > max_bytes - max_bytes / 10) {
    ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(database));
    RETURN_IF_ERROR(database.Run(
        "DELETE FROM tuning_samples WHERE tuning_id IN (SELECT tuning_id FROM tunings t WHERE "
        "EXISTS (SELECT 1 FROM tuning_samples s WHERE s.tuning_id = t.tuning_id) "
        "ORDER BY t.tune_time_us LIMIT ?)",
        kCapBatch));
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
