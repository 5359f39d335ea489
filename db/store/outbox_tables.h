// The statements of the outbox. Those that write run inside a transaction of
// the caller, who rolls it back on any error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/outbox_store.h"
#include "db/sqlite/database.h"
#include "db/sqlite/row_codec.h"

namespace convtune::db::store {

const sqlite::Table& OutboxTable();

// Puts the key in, in place of an older row of it, with the next sequence. Where
// more than `limit` rows are there, the oldest goes and is counted.
absl::Status Enqueue(sqlite::Database& database, const TuningKey& key, int64_t epoch,
                     int64_t limit);
// Also keeps the epoch of the last of them.
absl::Status EraseOutboxRows(sqlite::Database& database, const std::vector<OutboxId>& ids);
absl::StatusOr<int64_t> ReadAcknowledgedEpoch(const sqlite::Database& database);
// Every tuning of origin LOCAL that has no row, and of origin FLEET if it says so.
absl::StatusOr<int64_t> EnqueueAll(sqlite::Database& database, bool include_fleet, int64_t epoch,
                                   int64_t limit);

// Damaged rows are passed to `notice` and are void.
absl::StatusOr<OutboxPage> ReadOutboxRows(sqlite::Database& database, size_t limit,
                                          const std::function<void(const std::string&)>& notice);
absl::StatusOr<bool> HasOutboxRow(sqlite::Database& database, const TuningKey& key);

absl::StatusOr<int64_t> ReadMeta(const sqlite::Database& database, const std::string& key);
absl::Status WriteMeta(sqlite::Database& database, const std::string& key, int64_t value);

}  // namespace convtune::db::store
