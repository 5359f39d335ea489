// A TuningWriter stores tunings, each in place of what its key had.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/store/environments.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

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
