// The part of the store that keeps the outbox.
#include <random>

#include "db/store/outbox_tables.h"
#include "db/store/sqlite_store.h"
#include "proto/base/status_macros.h"

namespace convtune::db::store {

int64_t SqliteStore::NewEpoch() {
  std::random_device device;
  const uint64_t bits = (static_cast<uint64_t>(device()) << 32) | device();
  return static_cast<int64_t>(bits >> 1) | 1;  // positive, never 0
}

absl::StatusOr<OutboxPage> SqliteStore::ReadOutbox(size_t limit) {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  return ReadOutboxRows(*reader_, limit, options_.notice);
}

absl::Status SqliteStore::AckOutbox(const std::vector<OutboxId>& ids) {
  return Write([&](sqlite::Database& database) { return EraseOutboxRows(database, ids); });
}

absl::StatusOr<int64_t> SqliteStore::RequeueOutbox(bool include_fleet) {
  int64_t queued = 0;
  RETURN_IF_ERROR(Write([&](sqlite::Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(queued, EnqueueAll(database, include_fleet, epoch_, options_.outbox_limit));
    return absl::OkStatus();
  }));
  return queued;
}

absl::StatusOr<bool> SqliteStore::IsInOutbox(const TuningKey& key) {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  return HasOutboxRow(*reader_, key);
}

absl::StatusOr<OutboxStatus> SqliteStore::GetOutboxStatus() {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  OutboxStatus status;
  status.epoch = epoch_;
  const struct {
    const char* key;
    int64_t* value;
  } values[] = {{"outbox_sequence", &status.last_sequence},
                {"outbox_depth", &status.depth},
                {"outbox_dropped", &status.dropped},
                {"outbox_superseded", &status.superseded},
                {"fleet_release", &status.fleet_release}};
  for (const auto& each : values) {
    ASSIGN_OR_RETURN(*each.value, ReadMeta(*reader_, each.key));
  }
  ASSIGN_OR_RETURN(status.acknowledged_epoch, ReadAcknowledgedEpoch(*reader_));
  return status;
}

absl::Status SqliteStore::SetFleetRelease(int64_t release) {
  return Write([release](sqlite::Database& database) {
    return WriteMeta(database, "fleet_release", release);
  });
}

}  // namespace convtune::db::store
