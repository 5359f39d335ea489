#include "db/store/tuning_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "db/sqlite/transaction.h"
#include "db/store/tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/missing.h"

namespace convtune::db::store {
namespace {

// Pins and quarantine entries differ in their rows only.
template <typename Value, typename Read>
absl::StatusOr<std::vector<Value>> ReadKeyed(sqlite::Database& database, const sqlite::Table& table,
                                             const CorruptRowSink& corrupt, const Read& read) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", table.SelectList("t"), ", ",
                                           EnvironmentTable().SelectList("e"), " FROM ", table.name,
                                           " t JOIN environments e USING (environment_id) "
                                           "ORDER BY e.text, t.problem_text, t.candidate")));
  const int environment_column = static_cast<int>(table.columns.size()) + 1;
  std::vector<Value> values;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return values;
    }
    absl::StatusOr<Value> value = read(statement);
    const absl::StatusOr<EnvironmentRow> environment =
        ReadEnvironment(statement, environment_column);
    if (value.ok() && environment.ok()) {
      value->key.environment_text = environment->text;
      values.push_back(*std::move(value));
    } else {
      corrupt(std::string((value.ok() ? environment.status() : value.status()).message()));
    }
  }
}

}  // namespace

absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(
    const sqlite::Database& database, const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", EnvironmentTable().SelectList("e"),
                                           " FROM environments e")));
  std::map<int64_t, std::string> texts;
  RETURN_IF_ERROR(ForEachRow(
      statement, [](const auto& at) { return ReadEnvironment(at); }, corrupt,
      [&](EnvironmentRow row) { texts.emplace(row.id, std::move(row.text)); }));
  return texts;
}

namespace {

// Tunings whose environment is damaged: none of `environments`.
absl::Status TellOfLostEnvironments(const sqlite::Database& database,
                                    const std::map<int64_t, std::string>& environments,
                                    const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(sqlite::Statement ids,
                   database.Prepare("SELECT environment_id FROM environments"));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, ids.Step());
    if (!more) return absl::OkStatus();
    if (environments.contains(ids.Int(0))) continue;
    ASSIGN_OR_RETURN(
        sqlite::Statement tunings,
        database.Prepare("SELECT tuning_id, problem_text FROM tunings WHERE environment_id = ?"));
    tunings.BindInt(1, ids.Int(0));
    while (true) {
      ASSIGN_OR_RETURN(const bool found, tunings.Step());
      if (!found) break;
      corrupt(Concat("tunings row (tuning ", tunings.Int(0), ", ", tunings.Text(1),
                     "): its environment is damaged"));
    }
  }
}

}  // namespace

absl::StatusOr<StoredTuningReader> StoredTuningReader::Create(sqlite::Database* database) {
  ASSIGN_OR_RETURN(sqlite::Statement environment,
                   database->Prepare(Concat("SELECT ", EnvironmentTable().SelectList("e"),
                                            " FROM environments e WHERE e.text = ?")));
  // All of it in one statement: it sees one state of the file by itself.
  ASSIGN_OR_RETURN(
      sqlite::Statement tuning,
      database->Prepare(Concat("SELECT ", TuningTable().SelectList("t"), ", ",
                               SamplesTable().SelectList("s"),
                               " FROM tunings t LEFT JOIN tuning_samples s USING (tuning_id) "
                               "WHERE t.environment_id = ? AND t.problem_text = ?")));
  return StoredTuningReader(std::move(environment), std::move(tuning));
}

absl::StatusOr<Tuning> StoredTuningReader::Read(const TuningKey& key) {
  absl::StatusOr<Tuning> tuning = ReadAll(key);
  // One that stands at a row would keep its transaction open.
  tuning_.Reset();
  return tuning;
}

absl::StatusOr<std::optional<int64_t>> StoredTuningReader::EnvironmentId(const std::string& text) {
  if (const auto known = environments_.find(text); known != environments_.end()) {
    return known->second;
  }
  environment_.BindText(1, text);
  absl::StatusOr<bool> found = environment_.Step();
  absl::StatusOr<EnvironmentRow> row;
  if (found.ok() && *found) row = ReadEnvironment(environment_);
  environment_.Reset();
  RETURN_IF_ERROR(found.status());
  if (!*found) return std::nullopt;
  RETURN_IF_ERROR(row.status());
  if (row->text != text) return Damaged(EnvironmentTable(), row->text, kWrongRow);
  environments_.emplace(text, row->id);
  return row->id;
}

absl::StatusOr<Tuning> StoredTuningReader::ReadAll(const TuningKey& key) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> environment, EnvironmentId(key.environment_text));
  bool found = false;
  if (environment.has_value()) {
    tuning_.BindInt(1, *environment);
    tuning_.BindLastingText(2, key.problem_text);
    ASSIGN_OR_RETURN(found, tuning_.Step());
  }
  if (!found) {
    return MissingError({"tuning", key.problem_text},
                        Concat("no tuning of ", key.problem_text, " in ", key.environment_text));
  }
  const int samples = static_cast<int>(TuningTable().columns.size()) + 1;
  ASSIGN_OR_RETURN(const TuningRow row, ReadTuning(tuning_));
  if (row.environment_id != *environment || row.problem_text != key.problem_text) {
    return Damaged(TuningTable(), Concat("tuning ", row.id, ", ", row.problem_text), kWrongRow);
  }
  ASSIGN_OR_RETURN(Tuning tuning, DecodeTuning(row));
  tuning.key.environment_text = key.environment_text;
  if (tuning_.Type(samples) != sqlite::ColumnType::kNull) {
    RETURN_IF_ERROR(ReadSamples(tuning_, samples, &tuning.candidates));
  }
  return tuning;
}

namespace {

StoredTuning ToStored(TuningRow row, const std::string& environment_text) {
  StoredTuning stored;
  stored.key = {row.problem_text, environment_text};
  stored.decode = [row = std::move(row), environment_text]() -> absl::StatusOr<Tuning> {
    ASSIGN_OR_RETURN(Tuning tuning, DecodeTuning(row));
    tuning.key.environment_text = environment_text;
    return tuning;
  };
  return stored;
}

}  // namespace

absl::Status ForEachStoredTuning(sqlite::Database& database,
                                 const std::function<bool(StoredTuning)>& visit,
                                 const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  std::vector<std::pair<std::string, int64_t>> by_text;
  for (const auto& [id, text] : environments) by_text.emplace_back(text, id);
  std::sort(by_text.begin(), by_text.end());
  // One after the other, in the order of an index: nothing is sorted.
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat(
                       "SELECT ", TuningTable().SelectList("t"),
                       " FROM tunings t WHERE t.environment_id = ? ORDER BY t.problem_text")));
  for (const auto& [text, id] : by_text) {
    statement.Reset();
    statement.BindInt(1, id);
    while (true) {
      ASSIGN_OR_RETURN(const bool more, statement.Step());
      if (!more) break;
      absl::StatusOr<TuningRow> row = ReadTuning(statement);
      if (row.ok() && row->environment_id != id) {
        row =
            Damaged(TuningTable(), Concat("tuning ", row->id, ", ", row->problem_text), kWrongRow);
      }
      if (row.ok()) {
        if (!visit(ToStored(*std::move(row), text))) return absl::OkStatus();
      } else {
        corrupt(std::string(row.status().message()));
      }
    }
  }
  return TellOfLostEnvironments(database, environments, corrupt);
}

absl::StatusOr<std::vector<Environment>> ReadStoredEnvironments(sqlite::Database& database,
                                                                const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(
          Concat("SELECT ", EnvironmentTable().SelectList("e"),
                 " FROM environments e WHERE "
                 "EXISTS (SELECT 1 FROM tunings t WHERE t.environment_id = e.environment_id) OR "
                 "EXISTS (SELECT 1 FROM pins p WHERE p.environment_id = e.environment_id) OR "
                 "EXISTS (SELECT 1 FROM quarantine q WHERE q.environment_id = e.environment_id) OR "
                 "EXISTS (SELECT 1 FROM choices c WHERE c.environment_id = e.environment_id) OR "
                 "EXISTS (SELECT 1 FROM wanted w WHERE w.environment_id = e.environment_id) "
                 "ORDER BY e.text")));
  std::vector<Environment> environments;
  RETURN_IF_ERROR(ForEachRow(
      statement, [](const auto& at) { return ReadEnvironment(at); }, corrupt,
      [&](EnvironmentRow row) { environments.push_back(std::move(row.environment)); }));
  return environments;
}

absl::StatusOr<std::vector<Pin>> ReadStoredPins(sqlite::Database& database,
                                                const CorruptRowSink& corrupt) {
  return ReadKeyed<Pin>(database, PinTable(), corrupt, ReadPin);
}

absl::StatusOr<std::vector<Ban>> ReadStoredBans(sqlite::Database& database,
                                                const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", BanTable().SelectList("b"),
                                           " FROM bans b ORDER BY ban_number")));
  std::vector<Ban> bans;
  RETURN_IF_ERROR(
      ForEachRow(statement, ReadBan, corrupt, [&](Ban ban) { bans.push_back(std::move(ban)); }));
  return bans;
}

absl::StatusOr<std::vector<QuarantineEntry>> ReadStoredQuarantine(sqlite::Database& database,
                                                                  const CorruptRowSink& corrupt) {
  return ReadKeyed<QuarantineEntry>(database, QuarantineTable(), corrupt, ReadQuarantine);
}

}  // namespace convtune::db::store
