// Functions that read and store tunings.
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

// In a transaction of the caller, who rolls it back on any error: stores the tuning in place of
// what its key had. Returns the id of the environment's row. INVALID_ARGUMENT, naming the field, if
// `environment` is not the key's, or a number is NaN or infinite.
absl::StatusOr<int64_t> StoreTuning(sqlite::Database& database, Environments* environments,
                                    const Tuning& tuning, const Environment& environment);

}  // namespace convtune::db::store
