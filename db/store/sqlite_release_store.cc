// The part of the store that keeps releases and wanted problems.
#include "db/store/environments.h"
#include "db/store/meta.h"
#include "db/store/portfolios.h"
#include "db/store/rows.h"
#include "db/store/sqlite_store.h"

namespace convtune::db::store {

absl::StatusOr<std::vector<Release>> SqliteStore::ListReleases() {
  return Read([this](sqlite::Database& database) {
    return sqlite::ReadValues<ReleaseRow>(database, options_.notice);
  });
}

absl::Status SqliteStore::PutRelease(const Release& release,
                                     const std::vector<Portfolio>& portfolios) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    RETURN_IF_ERROR(sqlite::PutRow(database, ReleaseRow{release}));
    return StorePortfolios(database, release.number, portfolios);
  });
}

absl::Status SqliteStore::PutReleaseWithoutPortfolios(const Release& release) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    RETURN_IF_ERROR(sqlite::PutRow(database, ReleaseRow{release}));
    return database.Run("DELETE FROM choices WHERE release_number = ?", release.number);
  });
}

absl::StatusOr<Portfolio> SqliteStore::GetPortfolio(const TuningKey& key, int64_t release) {
  return Read([&](sqlite::Database& database) { return ReadPortfolio(database, key, release); });
}

absl::Status SqliteStore::ForEachPortfolio(const std::string& environment_text, int64_t release,
                                           const std::function<void(Portfolio)>& visit,
                                           const std::function<void(const std::string&)>& corrupt) {
  // It reads long: look-ups of tunings are not to wait for it.
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  return ForEachStoredPortfolio(*database, environment_text, release, visit, corrupt);
}

absl::StatusOr<int64_t> SqliteStore::ThinPortfolios(int64_t oldest) {
  return WriteAndCount([oldest](sqlite::Database& database) -> absl::StatusOr<int64_t> {
    RETURN_IF_ERROR(
        database.Run("DELETE FROM choices AS c WHERE c.release_number < ?1 AND "
                     "EXISTS (SELECT 1 FROM choices n WHERE "
                     "n.environment_id = c.environment_id AND "
                     "n.problem_text = c.problem_text AND "
                     "n.release_number > c.release_number AND "
                     "n.release_number <= ?1)",
                     oldest));
    return database.Changes();
  });
}

absl::Status SqliteStore::CheckServed() {
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  for (const sqlite::Table* table : ChecksummedTables()) {
    // Most of the file, and nothing that is served rests on it.
    if (table->name == SamplesRow::kTable) continue;
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
  return Read([](sqlite::Database& database) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const int64_t carries_over, GetMeta(database, "carry_over"));
    return carries_over != 0;
  });
}

absl::Status SqliteStore::SetCarryOver(bool carry_over) {
  return Write([carry_over](sqlite::Database& database) {
    return SetMeta(database, "carry_over", carry_over ? 1 : 0);
  });
}

absl::Status SqliteStore::UpdateWanted(const std::vector<WantedProblem>& put,
                                       const std::vector<TuningKey>& drop) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    Environments environments(&database);
    for (const WantedProblem& wanted : put) {
      ASSIGN_OR_RETURN(const int64_t id, environments.Of(wanted.key.environment_text));
      RETURN_IF_ERROR(sqlite::PutRow(database, WantedRow{id, wanted}));
    }
    for (const TuningKey& key : drop) {
      RETURN_IF_ERROR(EraseKeyed<WantedRow>(database, key).status());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<WantedProblem>> SqliteStore::ListWanted() {
  return Read([this](sqlite::Database& database) {
    return ReadKeyed<WantedRow>(database, options_.notice);
  });
}

}  // namespace convtune::db::store
