// Writing the store's tables. Every function runs inside a transaction of the
// caller, who rolls it back on any error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "proto/model/tuning.h"

namespace convtune {

// The row's id. One that is made from the text has the model's short form until
// a tuning brings the full name. INVALID_ARGUMENT if it is no environment.
absl::StatusOr<int64_t> EnsureEnvironment(Database& database, const std::string& text);
// INVALID_ARGUMENT, naming the field, if `environment` is not the key's or a
// number is none.
absl::Status StoreTuning(Database& database, const Tuning& tuning, const Environment& environment);
// Returns how many were there.
absl::StatusOr<int64_t> EraseTunings(Database& database, const std::vector<TuningKey>& keys);
absl::Status StorePin(Database& database, const Pin& pin);
// NOT_FOUND if there is none.
absl::Status ErasePin(Database& database, const TuningKey& key);
absl::Status StoreQuarantine(Database& database, const QuarantineEntry& entry);

}  // namespace convtune
