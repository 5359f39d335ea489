// Functions that check, copy and thin a database. README.md says how long each kind
// of row is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "db/sqlite/database.h"

namespace convtune::db::store {

// Candidates from this place in the ranking on lose their samples when their
// tuning gets old.
inline constexpr int kCandidatesThatKeepSamples = 3;

// Structure, foreign keys and the checksum of every row, in one read
// transaction.
absl::StatusOr<v1::CheckDatabaseResponse> CheckDatabase(sqlite::Database& database);

// Writes a copy of what is committed to `path`, complete, durable and read back as CheckDatabase
// does, or not at all. Returns its bytes. DATA_LOSS: the copy, and with it the database, is
// damaged. INVALID_ARGUMENT naming `path` if it is not absolute or its folder does not exist;
// ALREADY_EXISTS if there is something.
// CANCELLED once `stopped` is true.
absl::StatusOr<int64_t> BackupDatabase(sqlite::Database& database, const std::string& path,
                                       const std::function<bool()>& stopped);

// In a transaction of the caller: drops the samples that retention lets go of
// tunings measured before `before`. Returns the number of candidates.
absl::StatusOr<int64_t> ThinSamples(sqlite::Database& database, absl::Time before);

// In transactions of its own: while the file holds more than `max_bytes`,
// drops the samples of the oldest tunings until it holds a tenth less, or no
// samples are left.
absl::Status EnforceSizeCap(sqlite::Database& database, int64_t max_bytes);

// Takes free pages off the file's end; the file shrinks at the next
// checkpoint.
absl::Status ReleaseFreePages(sqlite::Database& database);

}  // namespace convtune::db::store
