// Functions that read tunings, pins and quarantines, each in one read transaction.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/tuning_store.h"
#include "proto/base/status_macros.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

// Is told of each damaged row that was left out.
using CorruptRowSink = std::function<void(const std::string&)>;

// Calls `take(row)` for each row of the statement that `read(statement)` can read.
template <typename Read, typename Take>
absl::Status ForEachRow(sqlite::Statement& statement, const Read& read,
                        const CorruptRowSink& corrupt, const Take& take) {
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) return absl::OkStatus();
    auto row = read(statement);
    if (row.ok()) {
      take(*std::move(row));
    } else {
      corrupt(std::string(row.status().message()));
    }
  }
}

// Texts of the environments by id; damaged ones are left out.
absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(
    const sqlite::Database& database, const CorruptRowSink& corrupt);

// Reads tunings by their keys. Prepared once for many. Not thread-safe; must not
// outlive the database.
class StoredTuningReader {
 public:
  static absl::StatusOr<StoredTuningReader> Create(sqlite::Database* database);

  // With samples. NOT_FOUND if there is none; DATA_LOSS if a row of it is
  // damaged, its samples included.
  absl::StatusOr<Tuning> Read(const TuningKey& key);

 private:
  StoredTuningReader(sqlite::Statement environment, sqlite::Statement tuning)
      : environment_(std::move(environment)), tuning_(std::move(tuning)) {}
  // Nothing if there is none.
  absl::StatusOr<std::optional<int64_t>> EnvironmentId(const std::string& text);
  absl::StatusOr<Tuning> ReadAll(const TuningKey& key);

  sqlite::Statement environment_;
  sqlite::Statement tuning_;
  // By text, those whose row was sound. Rows stay, and keep their numbers.
  std::map<std::string, int64_t> environments_;
};

// As TuningStore::ForEachStored. A tuning with a damaged candidate is left out
// as a whole: what is left might have another winner.
absl::Status ForEachStoredTuning(sqlite::Database& database,
                                 const std::function<bool(StoredTuning)>& visit,
                                 const CorruptRowSink& corrupt);

// Environments that any row refers to.
absl::StatusOr<std::vector<Environment>> ReadStoredEnvironments(sqlite::Database& database,
                                                                const CorruptRowSink& corrupt);
// Ordered by environment and problem.
absl::StatusOr<std::vector<Pin>> ReadStoredPins(sqlite::Database& database,
                                                const CorruptRowSink& corrupt);
// By ascending number.
absl::StatusOr<std::vector<Ban>> ReadStoredBans(sqlite::Database& database,
                                                const CorruptRowSink& corrupt);
absl::StatusOr<std::vector<QuarantineEntry>> ReadStoredQuarantine(sqlite::Database& database,
                                                                  const CorruptRowSink& corrupt);

}  // namespace convtune::db::store
