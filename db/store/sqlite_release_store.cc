// The part of the store that keeps releases and wanted problems.
#include "db/store/outbox_tables.h"
#include "db/store/release_reader.h"
#include "db/store/release_writer.h"
#include "db/store/sqlite_store.h"
#include "db/store/tables.h"
#include "proto/base/status_macros.h"

namespace convtune::db::store {

absl::StatusOr<std::vector<Release>> SqliteStore::ListReleases() {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  return ReadStoredReleases(*reader_, options_.notice);
}

absl::Status SqliteStore::PutRelease(const Release& release,
                                     const std::vector<Portfolio>& portfolios) {
  return Write(
      [&](sqlite::Database& database) { return StoreRelease(database, release, portfolios); });
}

absl::Status SqliteStore::PutReleaseWithoutPortfolios(const Release& release) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    RETURN_IF_ERROR(StoreRelease(database, release, {}));
    return ErasePortfoliosOf(database, release.number);
  });
}

absl::StatusOr<Portfolio> SqliteStore::GetPortfolio(const TuningKey& key, int64_t release) {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  return ReadStoredPortfolio(*reader_, key, release);
}

absl::Status SqliteStore::ForEachPortfolio(const std::string& environment_text, int64_t release,
                                           const std::function<void(Portfolio)>& visit,
                                           const std::function<void(const std::string&)>& corrupt) {
  // It reads long: look-ups of tunings are not to wait for it.
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  return ForEachStoredPortfolio(*database, environment_text, release, visit, corrupt);
}

absl::StatusOr<int64_t> SqliteStore::ThinPortfolios(int64_t oldest) {
  int64_t rows = 0;
  RETURN_IF_ERROR(Write([&](sqlite::Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(rows, ErasePortfoliosBefore(database, oldest));
    return absl::OkStatus();
  }));
  return rows;
}

absl::Status SqliteStore::CheckServed() {
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  for (const sqlite::Table* table : ChecksummedTables()) {
    // Most of the file, and nothing that is served rests on it.
    if (table == &SamplesTable()) continue;
    const absl::Status sound = database->QuickCheck(table->name);
    if (absl::IsDataLoss(sound)) {
      MutexLock lock(write_mutex_);
      damaged_ = true;
    }
    RETURN_IF_ERROR(sound);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SqliteStore::CarriesOver() {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  ASSIGN_OR_RETURN(const int64_t carries_over, ReadMeta(*reader_, "carry_over"));
  return carries_over != 0;
}

absl::Status SqliteStore::SetCarryOver(bool carry_over) {
  return Write([carry_over](sqlite::Database& database) {
    return WriteMeta(database, "carry_over", carry_over ? 1 : 0);
  });
}

absl::Status SqliteStore::UpdateWanted(const std::vector<WantedProblem>& put,
                                       const std::vector<TuningKey>& drop) {
  return Write([&](sqlite::Database& database) { return StoreWanted(database, put, drop); });
}

absl::StatusOr<std::vector<WantedProblem>> SqliteStore::ListWanted() {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  return ReadStoredWanted(*reader_, options_.notice);
}

}  // namespace convtune::db::store
