// A TuningWriter and functions that write tunings, pins and quarantines, each inside
// a transaction of the caller, who rolls it back on any error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

// The id of the row, whether it is sound or not; nullopt: there is none.
absl::StatusOr<std::optional<int64_t>> FindEnvironment(const sqlite::Database& database,
                                                       const std::string& text);
// The row's id. One that is made from the text has the model's short form until
// a tuning brings the full name. INVALID_ARGUMENT if it is no environment.
absl::StatusOr<int64_t> EnsureEnvironment(sqlite::Database& database, const std::string& text);
// Stores tunings, each in place of what its key had. Prepared once for many;
// what it remembers holds for one transaction. Not thread-safe; must not outlive
// the database.
class TuningWriter {
 public:
  static absl::StatusOr<TuningWriter> Create(sqlite::Database& database);
  // INVALID_ARGUMENT, naming the field, if `environment` is not the key's or a
  // number is none.
  absl::Status Store(const Tuning& tuning, const Environment& environment);

 private:
  // A row that is as `environment` says.
  struct Known {
    Environment environment;
    int64_t id;
  };

  TuningWriter(sqlite::Database* database, sqlite::Statement erase, sqlite::Statement tuning,
               sqlite::Statement samples, int64_t next_id)
      : database_(database),
        erase_(std::move(erase)),
        tuning_(std::move(tuning)),
        samples_(std::move(samples)),
        next_id_(next_id) {}
  absl::StatusOr<int64_t> EnvironmentId(const std::string& text, const Environment& environment);

  sqlite::Database* database_;
  sqlite::Statement erase_;
  sqlite::Statement tuning_;
  sqlite::Statement samples_;
  std::map<std::string, Known> environments_;  // by text
  int64_t next_id_;
};

// Both return how many were there.
absl::StatusOr<int64_t> EraseByKey(sqlite::Database& database, std::string_view table,
                                   const TuningKey& key);
absl::StatusOr<int64_t> EraseTunings(sqlite::Database& database,
                                     const std::vector<TuningKey>& keys);
absl::Status StorePin(sqlite::Database& database, const Pin& pin);
// NOT_FOUND if there is none.
absl::Status ErasePin(sqlite::Database& database, const TuningKey& key);
// Gives its number.
absl::StatusOr<int64_t> StoreBan(sqlite::Database& database, Ban ban);
// NOT_FOUND if there is none.
absl::Status EraseBan(sqlite::Database& database, int64_t number);
absl::Status StoreQuarantine(sqlite::Database& database, const QuarantineEntry& entry);
// Those that have no entry are no error.
absl::Status EraseQuarantine(sqlite::Database& database, const TuningKey& key,
                             const std::vector<CandidateId>& candidates);

}  // namespace convtune::db::store
