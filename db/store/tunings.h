// Functions that read tunings. A TuningWriter stores tunings, each in place of what its key had.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/sqlite/row_table.h"
#include "db/store/environments.h"
#include "db/tuning_store.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

// Ids of the environments whose rows were sound, by text: rows stay, and keep their numbers.
using SoundEnvironments = std::map<std::string, int64_t>;

// Reads the key's tuning with its samples. NOT_FOUND if the database has no such tuning;
// DATA_LOSS if a row of the tuning, of its candidates or of its samples is damaged.
absl::StatusOr<Tuning> ReadStoredTuning(const sqlite::Database& database, const TuningKey& key,
                                        SoundEnvironments* known);

// As TuningStore::ForEachStored, in one read transaction.
absl::Status ForEachStoredTuning(sqlite::Database& database,
                                 const std::function<bool(StoredTuning)>& visit,
                                 const sqlite::CorruptRowSink& corrupt);

// For one transaction of the caller, who rolls it back on any error. Not thread-safe; must not
// outlive the database.
class TuningWriter {
 public:
  static absl::StatusOr<TuningWriter> Create(sqlite::Database* database);
  // Returns the id of the environment's row. INVALID_ARGUMENT, naming the field, if
  // `environment` is not the key's or a number is none.
  absl::StatusOr<int64_t> Store(const Tuning& tuning, const Environment& environment);

 private:
  TuningWriter(sqlite::Database* database, sqlite::Statement erase, sqlite::Statement tuning,
               sqlite::Statement samples, int64_t next_id)
      : environments_(database),
        erase_(std::move(erase)),
        tuning_(std::move(tuning)),
        samples_(std::move(samples)),
        next_id_(next_id) {}

  Environments environments_;
  sqlite::Statement erase_;
  sqlite::Statement tuning_;
  sqlite::Statement samples_;
  int64_t next_id_;
};

}  // namespace convtune::db::store
