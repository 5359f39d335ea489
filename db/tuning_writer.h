// Writing the store's tables. Every function runs inside a transaction of the
// caller, who rolls it back on any error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "proto/model/tuning.h"

namespace convtune {

// The row's id. One that is made from the text has the model's short form until
// a tuning brings the full name. INVALID_ARGUMENT if it is no environment.
absl::StatusOr<int64_t> EnsureEnvironment(Database& database, const std::string& text);
// Stores tunings, each in place of what its key had. Prepared once for many;
// what it remembers holds for one transaction. Not thread-safe; must not outlive
// the database.
class TuningWriter {
 public:
  static absl::StatusOr<TuningWriter> Create(Database& database);
  // INVALID_ARGUMENT, naming the field, if `environment` is not the key's or a
  // number is none.
  absl::Status Store(const Tuning& tuning, const Environment& environment);

 private:
  // A row that is as `environment` says.
  struct Known {
    Environment environment;
    int64_t id;
  };

  TuningWriter(Database* database, Statement erase, Statement tuning, Statement candidates,
               Statement samples, int64_t next_id)
      : database_(database),
        erase_(std::move(erase)),
        tuning_(std::move(tuning)),
        candidates_(std::move(candidates)),
        samples_(std::move(samples)),
        next_id_(next_id) {}
  absl::StatusOr<int64_t> EnvironmentId(const std::string& text, const Environment& environment);

  Database* database_;
  Statement erase_;
  Statement tuning_;
  Statement candidates_;
  Statement samples_;
  std::map<std::string, Known> environments_;  // by text
  int64_t next_id_;
};

// Returns how many were there.
absl::StatusOr<int64_t> EraseTunings(Database& database, const std::vector<TuningKey>& keys);
absl::Status StorePin(Database& database, const Pin& pin);
// NOT_FOUND if there is none.
absl::Status ErasePin(Database& database, const TuningKey& key);
absl::Status StoreQuarantine(Database& database, const QuarantineEntry& entry);
// Those that have no entry are no error.
absl::Status EraseQuarantine(Database& database, const TuningKey& key,
                             const std::vector<CandidateId>& candidates);

}  // namespace convtune
