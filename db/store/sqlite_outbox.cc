// The part of the store that keeps the outbox.
#include <random>

#include "db/store/rows.h"
#include "db/store/sqlite_store.h"
#include "proto/base/strings.h"

namespace convtune::db::store {
namespace {

constexpr char kSequence[] = "outbox_sequence";
constexpr char kDepth[] = "outbox_depth";
constexpr char kDropped[] = "outbox_dropped";
constexpr char kSuperseded[] = "outbox_superseded";
constexpr char kFleetRelease[] = "fleet_release";
constexpr char kAcknowledgedEpoch[] = "outbox_acknowledged_epoch";

}  // namespace

int64_t SqliteStore::NewEpoch() {
  std::random_device device;
  const uint64_t bits = (static_cast<uint64_t>(device()) << 32) | device();
  return static_cast<int64_t>(bits >> 1) | 1;  // positive, never 0
}

absl::Status SqliteStore::Enqueue(sqlite::Database& database, int64_t environment_id,
                                  const std::string& problem_text) const {
  RETURN_IF_ERROR(database.Run("DELETE FROM outbox WHERE environment_id = ? AND problem_text = ?",
                               environment_id, problem_text));
  const int64_t replaced = database.Changes();
  if (replaced > 0) RETURN_IF_ERROR(AddToMeta(database, kSuperseded, replaced).status());
  ASSIGN_OR_RETURN(const int64_t sequence, AddToMeta(database, kSequence, 1));
  RETURN_IF_ERROR(
      sqlite::InsertRow(database, OutboxRow{sequence, epoch_, environment_id, problem_text}));
  ASSIGN_OR_RETURN(const int64_t depth, AddToMeta(database, kDepth, 1 - replaced));
  if (depth <= options_.outbox_limit) return absl::OkStatus();
  RETURN_IF_ERROR(
      database.Run("DELETE FROM outbox WHERE sequence = (SELECT MIN(sequence) FROM outbox)"));
  RETURN_IF_ERROR(AddToMeta(database, kDropped, 1).status());
  return AddToMeta(database, kDepth, -1).status();
}

absl::StatusOr<OutboxPage> SqliteStore::ReadOutbox(size_t limit) {
  return Read([&](sqlite::Database& database) -> absl::StatusOr<OutboxPage> {
    const sqlite::Table& table = sqlite::TableOf<OutboxRow>();
    ASSIGN_OR_RETURN(
        sqlite::Statement statement,
        database.Prepare(Concat("SELECT ", table.list, ", ", sqlite::TableOf<EnvironmentRow>().list,
                                " FROM outbox LEFT JOIN environments USING (environment_id) "
                                "ORDER BY outbox.sequence LIMIT ?")));
    statement.Bind(limit + 1);
    OutboxPage page;
    SoundEnvironments known;
    while (true) {
      ASSIGN_OR_RETURN(page.more, statement.Step());
      if (!page.more || page.entries.size() + page.void_ids.size() == limit) return page;
      const OutboxId id{statement.Int(1), statement.Int(0)};
      const absl::StatusOr<OutboxRow> row = sqlite::ReadRow<OutboxRow>(statement);
      absl::StatusOr<EnvironmentRow> environment =
          sqlite::ReadRow<EnvironmentRow>(statement, table.width());
      absl::StatusOr<Tuning> tuning = [&]() -> absl::StatusOr<Tuning> {
        RETURN_IF_ERROR(row.status());
        RETURN_IF_ERROR(environment.status());
        return ReadStoredTuning(database, {row->problem_text, environment->text}, &known);
      }();
      if (tuning.ok() && tuning->origin != Origin::kImported) {
        for (Candidate& candidate : tuning->candidates) candidate.samples_ns.clear();
        page.entries.push_back({id, *std::move(tuning), std::move(environment->environment)});
        continue;
      }
      if (absl::IsDataLoss(tuning.status())) {
        options_.notice(Concat("not delivered to the fleet, since its row is damaged: ",
                               row.ok() ? row->problem_text + ": " : "",
                               tuning.status().message()));
      } else if (!tuning.ok() && !absl::IsNotFound(tuning.status())) {
        return tuning.status();
      }
      page.void_ids.push_back(id);
    }
  });
}

absl::Status SqliteStore::AckOutbox(const std::vector<OutboxId>& ids) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    int64_t erased = 0;
    OutboxId last;
    for (const OutboxId& id : ids) {
      RETURN_IF_ERROR(database.Run("DELETE FROM outbox WHERE sequence = ? AND epoch = ?",
                                   id.sequence, id.epoch));
      if (database.Changes() == 0) continue;
      ++erased;
      if (id.sequence > last.sequence) last = id;
    }
    if (erased == 0) return absl::OkStatus();
    RETURN_IF_ERROR(SetMeta(database, kAcknowledgedEpoch, last.epoch));
    return AddToMeta(database, kDepth, -erased).status();
  });
}

absl::StatusOr<int64_t> SqliteStore::RequeueOutbox(bool include_fleet) {
  return WriteAndCount([&](sqlite::Database& database) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(
        sqlite::Statement statement,
        database.Prepare("SELECT t.environment_id, t.problem_text FROM tunings t "
                         "WHERE t.origin IN (?, ?) AND NOT EXISTS (SELECT 1 FROM outbox o "
                         "WHERE o.environment_id = t.environment_id AND "
                         "o.problem_text = t.problem_text) ORDER BY t.tuning_id"));
    std::vector<std::pair<int64_t, std::string>> keys;
    RETURN_IF_ERROR(statement.Bind(Origin::kLocal, include_fleet ? Origin::kFleet : Origin::kLocal)
                        .ForEachRow([&] {
                          keys.emplace_back(statement.Int(0), std::string(statement.Text(1)));
                        }));
    for (const auto& [environment_id, problem] : keys) {
      RETURN_IF_ERROR(Enqueue(database, environment_id, problem));
    }
    return static_cast<int64_t>(keys.size());
  });
}

absl::StatusOr<bool> SqliteStore::IsInOutbox(const TuningKey& key) {
  return Read([&](sqlite::Database& database) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(
        const int64_t rows,
        database.QueryInt("SELECT COUNT(*) FROM outbox WHERE problem_text = ? AND environment_id = "
                          "(SELECT environment_id FROM environments WHERE text = ?)",
                          key.problem_text, key.environment_text));
    return rows > 0;
  });
}

absl::StatusOr<v1::FleetState> SqliteStore::GetOutboxStatus() {
  return Read([this](sqlite::Database& database) -> absl::StatusOr<v1::FleetState> {
    ASSIGN_OR_RETURN(const int64_t sequence, GetMeta(database, kSequence));
    ASSIGN_OR_RETURN(const int64_t depth, GetMeta(database, kDepth));
    ASSIGN_OR_RETURN(const int64_t dropped, GetMeta(database, kDropped));
    ASSIGN_OR_RETURN(const int64_t superseded, GetMeta(database, kSuperseded));
    ASSIGN_OR_RETURN(const int64_t release, GetMeta(database, kFleetRelease));
    // Not there before the first acknowledgement.
    ASSIGN_OR_RETURN(const int64_t acknowledged,
                     database.QueryInt("SELECT COALESCE(MAX(value), 0) FROM meta WHERE key = ?",
                                       kAcknowledgedEpoch));
    v1::FleetState state;
    state.set_epoch(epoch_);
    state.set_last_sequence(sequence);
    state.set_outbox_depth(depth);
    state.set_outbox_dropped(dropped);
    state.set_outbox_superseded(superseded);
    state.set_release(release);
    state.set_acknowledged_epoch(acknowledged);
    return state;
  });
}

absl::Status SqliteStore::SetFleetRelease(int64_t release) {
  return Write(
      [release](sqlite::Database& database) { return SetMeta(database, kFleetRelease, release); });
}

}  // namespace convtune::db::store
