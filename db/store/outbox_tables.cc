#include "db/store/outbox_tables.h"

#include <optional>
#include <utility>

#include "db/store/tables.h"
#include "db/store/tuning_reader.h"
#include "db/store/tuning_writer.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {
namespace {

constexpr char kSequence[] = "outbox_sequence";
constexpr char kDepth[] = "outbox_depth";
constexpr char kDropped[] = "outbox_dropped";
constexpr char kSuperseded[] = "outbox_superseded";
// Not there before the first acknowledgement.
constexpr char kAcknowledgedEpoch[] = "outbox_acknowledged_epoch";

absl::StatusOr<int64_t> AddToMeta(sqlite::Database& database, const std::string& key,
                                  int64_t amount) {
  ASSIGN_OR_RETURN(const int64_t value, ReadMeta(database, key));
  RETURN_IF_ERROR(WriteMeta(database, key, value + amount));
  return value + amount;
}

absl::Status EnqueueById(sqlite::Database& database, int64_t environment_id,
                         const std::string& problem, int64_t epoch, int64_t limit) {
  ASSIGN_OR_RETURN(
      sqlite::Statement erase,
      database.Prepare("DELETE FROM outbox WHERE environment_id = ? AND problem_text = ?"));
  erase.BindInt(1, environment_id);
  erase.BindText(2, problem);
  RETURN_IF_ERROR(erase.Run());
  const int64_t replaced = database.Changes();
  if (replaced > 0) RETURN_IF_ERROR(AddToMeta(database, kSuperseded, replaced).status());
  ASSIGN_OR_RETURN(const int64_t sequence, AddToMeta(database, kSequence, 1));
  ASSIGN_OR_RETURN(sqlite::Statement insert, database.Prepare(OutboxTable().InsertSql()));
  RETURN_IF_ERROR(sqlite::RowWriter(OutboxTable(), insert)
                      .Int(sequence)
                      .Int(epoch)
                      .Int(environment_id)
                      .Text(problem)
                      .Insert());
  ASSIGN_OR_RETURN(const int64_t depth, AddToMeta(database, kDepth, 1 - replaced));
  if (depth <= limit) return absl::OkStatus();
  RETURN_IF_ERROR(
      database.Execute("DELETE FROM outbox WHERE sequence = (SELECT MIN(sequence) FROM outbox)"));
  RETURN_IF_ERROR(AddToMeta(database, kDropped, 1).status());
  return AddToMeta(database, kDepth, -1).status();
}

struct Row {
  OutboxId id;
  bool sound = false;
  std::string problem_text;
  std::string environment_text;
};

absl::StatusOr<std::vector<Row>> ReadRows(sqlite::Database& database, size_t limit) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", OutboxTable().SelectList("o"),
                                           ", e.text FROM outbox o LEFT JOIN environments e USING "
                                           "(environment_id) ORDER BY o.sequence LIMIT ?")));
  statement.BindInt(1, static_cast<int64_t>(limit));
  std::vector<Row> rows;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, statement.Step());
    if (!found) return rows;
    sqlite::RowReader reader(OutboxTable(), statement);
    Row row;
    row.id.sequence = reader.Int();
    row.id.epoch = reader.Int();
    row.sound = reader.ChecksumMatches();
    reader.Skip();
    row.problem_text = reader.Text();
    row.environment_text = std::string(statement.Text(5));
    rows.push_back(std::move(row));
  }
}

}  // namespace

const sqlite::Table& OutboxTable() {
  static const sqlite::Table table{"outbox",
                                   {"sequence", "epoch", "environment_id", "problem_text"}};
  return table;
}

absl::StatusOr<int64_t> ReadMeta(const sqlite::Database& database, const std::string& key) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare("SELECT value FROM meta WHERE key = ?"));
  statement.BindText(1, key);
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return absl::DataLossError(Concat(database.path(), ": meta has no ", key));
  return statement.Int(0);
}

absl::Status WriteMeta(sqlite::Database& database, const std::string& key, int64_t value) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare("UPDATE meta SET value = ? WHERE key = ?"));
  statement.BindInt(1, value);
  statement.BindText(2, key);
  return statement.Run();
}

absl::Status Enqueue(sqlite::Database& database, const TuningKey& key, int64_t epoch,
                     int64_t limit) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> environment_id,
                   FindEnvironment(database, key.environment_text));
  if (!environment_id.has_value()) {
    return absl::InternalError(Concat("outbox: no environment ", key.environment_text));
  }
  return EnqueueById(database, *environment_id, key.problem_text, epoch, limit);
}

absl::Status EraseOutboxRows(sqlite::Database& database, const std::vector<OutboxId>& ids) {
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM outbox WHERE sequence = ? AND epoch = ?"));
  int64_t erased = 0;
  OutboxId last;
  for (const OutboxId& id : ids) {
    erase.BindInt(1, id.sequence);
    erase.BindInt(2, id.epoch);
    RETURN_IF_ERROR(erase.Run());
    if (database.Changes() == 0) continue;
    ++erased;
    if (id.sequence > last.sequence) last = id;
  }
  if (erased == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(sqlite::Statement keep,
                   database.Prepare("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) "
                                    "DO UPDATE SET value = excluded.value"));
  keep.BindText(1, kAcknowledgedEpoch);
  keep.BindInt(2, last.epoch);
  RETURN_IF_ERROR(keep.Run());
  return AddToMeta(database, kDepth, -erased).status();
}

absl::StatusOr<int64_t> ReadAcknowledgedEpoch(const sqlite::Database& database) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare("SELECT value FROM meta WHERE key = ?"));
  statement.BindText(1, kAcknowledgedEpoch);
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  return found ? statement.Int(0) : 0;
}

absl::StatusOr<int64_t> EnqueueAll(sqlite::Database& database, bool include_fleet, int64_t epoch,
                                   int64_t limit) {
  std::vector<std::pair<int64_t, std::string>> keys;
  {
    ASSIGN_OR_RETURN(
        sqlite::Statement statement,
        database.Prepare("SELECT t.environment_id, t.problem_text FROM tunings t "
                         "WHERE t.origin IN (?, ?) AND NOT EXISTS (SELECT 1 FROM outbox o "
                         "WHERE o.environment_id = t.environment_id AND "
                         "o.problem_text = t.problem_text) ORDER BY t.tuning_id"));
    statement.BindInt(1, static_cast<int64_t>(Origin::kLocal));
    statement.BindInt(2, static_cast<int64_t>(include_fleet ? Origin::kFleet : Origin::kLocal));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, statement.Step());
      if (!found) break;
      keys.emplace_back(statement.Int(0), std::string(statement.Text(1)));
    }
  }
  for (const auto& [environment_id, problem] : keys) {
    RETURN_IF_ERROR(EnqueueById(database, environment_id, problem, epoch, limit));
  }
  return static_cast<int64_t>(keys.size());
}

absl::StatusOr<OutboxPage> ReadOutboxRows(sqlite::Database& database, size_t limit,
                                          const std::function<void(const std::string&)>& notice) {
  ASSIGN_OR_RETURN(std::vector<Row> rows, ReadRows(database, limit + 1));
  OutboxPage page;
  page.more = rows.size() > limit;
  if (page.more) rows.pop_back();
  ASSIGN_OR_RETURN(const std::vector<Environment> environments,
                   ReadStoredEnvironments(database, notice));
  ASSIGN_OR_RETURN(StoredTuningReader reader, StoredTuningReader::Create(&database));
  for (const Row& row : rows) {
    const Environment* environment = nullptr;
    for (const Environment& known : environments) {
      if (known.ToText() == row.environment_text) environment = &known;
    }
    absl::StatusOr<Tuning> tuning = absl::NotFoundError("");
    if (row.sound && environment != nullptr) {
      tuning = reader.Read({row.problem_text, row.environment_text});
    }
    if (!tuning.ok() || tuning->origin == Origin::kImported) {
      if (!row.sound || absl::IsDataLoss(tuning.status())) {
        notice(Concat("not delivered to the fleet, since its row is damaged: ", row.problem_text));
      } else if (!tuning.ok() && !absl::IsNotFound(tuning.status())) {
        return tuning.status();
      }
      page.void_ids.push_back(row.id);
      continue;
    }
    for (Candidate& candidate : tuning->candidates) candidate.samples_ns.clear();
    page.entries.push_back({row.id, *std::move(tuning), *environment});
  }
  return page;
}

absl::StatusOr<bool> HasOutboxRow(sqlite::Database& database, const TuningKey& key) {
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare("SELECT 1 FROM outbox WHERE problem_text = ? AND environment_id = "
                       "(SELECT environment_id FROM environments WHERE text = ?)"));
  statement.BindText(1, key.problem_text);
  statement.BindText(2, key.environment_text);
  return statement.Step();
}

}  // namespace convtune::db::store
