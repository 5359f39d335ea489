#include "db/store/rows.h"

#include <algorithm>
#include <cmath>

#include "proto/base/strings.h"
#include "proto/convert/record_arena.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

using sqlite::Damaged;
using sqlite::ReadRow;
using sqlite::TableOf;

TuningRow ToRow(const Tuning& tuning, int64_t id, int64_t environment_id) {
  v1::Tuning* const record = RecordArena::OfThread().New();
  Fill(tuning, /*with_samples=*/false, record);
  return {id,
          environment_id,
          tuning.key.problem_text,
          tuning.origin,
          tuning.tune_time,
          record->SerializeAsString()};
}

StoredTuning ToStored(TuningRow row, const std::string& environment_text) {
  StoredTuning stored;
  stored.key = {row.problem_text, environment_text};
  stored.decode = [row = std::move(row), environment_text]() -> absl::StatusOr<Tuning> {
    ASSIGN_OR_RETURN(Tuning tuning, ToTuning(row));
    tuning.key.environment_text = environment_text;
    return tuning;
  };
  return stored;
}

// nullopt: there is no such environment.
absl::StatusOr<std::optional<int64_t>> FindSound(const sqlite::Database& database,
                                                 const std::string& text,
                                                 SoundEnvironments* known) {
  if (const auto found = known->find(text); found != known->end()) return found->second;
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", TableOf<EnvironmentRow>().list,
                                           " FROM environments WHERE text = ?")));
  ASSIGN_OR_RETURN(const bool found, statement.Bind(text).Step());
  if (!found) return std::nullopt;
  ASSIGN_OR_RETURN(const EnvironmentRow row, ReadRow<EnvironmentRow>(statement));
  if (row.text != text) return Damaged(row, kWrongRow);
  known->emplace(text, row.id);
  return row.id;
}

absl::Status CheckNumbers(const Tuning& tuning) {
  for (size_t i = 0; i < tuning.candidates.size(); ++i) {
    const Candidate& c = tuning.candidates[i];
    std::vector<std::pair<const char*, double>> numbers = {{"median_us", c.median_us},
                                                           {"q1_us", c.q1_us},
                                                           {"q3_us", c.q3_us},
                                                           {"low_us", c.low_us},
                                                           {"high_us", c.high_us},
                                                           {"host_us", c.host_us},
                                                           {"sm_clock_mhz", c.sm_clock_mhz},
                                                           {"error", c.error.value_or(0)},
                                                           {"find_us", c.find_us}};
    for (const TimeSummary& time : c.other_times) {
      numbers.emplace_back("other_times", time.median_us + time.low_us + time.high_us);
    }
    for (const auto& [field, value] : numbers) {
      if (std::isfinite(static_cast<float>(value))) continue;
      return absl::InvalidArgumentError(
          Concat("candidates[", i, "].", field, ": must be a finite number"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<const sqlite::Table*> ChecksummedTables() {
  return {&TableOf<EnvironmentRow>(), &TableOf<TuningRow>(), &TableOf<SamplesRow>(),
          &TableOf<PinRow>(),         &TableOf<BanRow>(),    &TableOf<QuarantineRow>(),
          &TableOf<ReleaseRow>(),     &TableOf<ChoiceRow>(), &TableOf<WantedRow>(),
          &TableOf<OutboxRow>()};
}

absl::StatusOr<Tuning> ToTuning(const TuningRow& row) {
  Tuning tuning;
  const v1::Tuning* const record = RecordArena::OfThread().Parse(row.record);
  if (record == nullptr) return Damaged(row, "its record is no message");
  if (const absl::Status read = Read(*record, &tuning); !read.ok()) {
    return Damaged(row, Concat("its record means nothing to this program: ", read.message()));
  }
  tuning.key.problem_text = row.problem_text;
  return tuning;
}

SamplesRow ToSamplesRow(int64_t tuning_id, const std::vector<Candidate>& candidates) {
  size_t count = candidates.size();
  while (count > 0 && candidates[count - 1].samples_ns.empty()) --count;
  v1::Tuning* const record = RecordArena::OfThread().New();
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& samples = candidates[i].samples_ns;
    record->add_candidates()->mutable_samples_ns()->Add(samples.begin(), samples.end());
  }
  return {tuning_id, count, record->SerializeAsString()};
}

absl::Status GetSamples(const SamplesRow& row, std::vector<Candidate>* candidates) {
  const v1::Tuning* const record = RecordArena::OfThread().Parse(row.record);
  if (record == nullptr || record->candidates_size() > static_cast<int>(candidates->size())) {
    return Damaged(row, "its samples mean nothing to this program");
  }
  for (int i = 0; i < record->candidates_size(); ++i) {
    const auto& samples = record->candidates(i).samples_ns();
    (*candidates)[static_cast<size_t>(i)].samples_ns.assign(samples.begin(), samples.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> GetMeta(const sqlite::Database& database, std::string_view name) {
  absl::StatusOr<int64_t> value = database.QueryInt("SELECT value FROM meta WHERE key = ?", name);
  if (!absl::IsNotFound(value.status())) return value;
  return absl::DataLossError(Concat(database.path(), ": meta has no ", name));
}

absl::Status SetMeta(const sqlite::Database& database, std::string_view name, int64_t value) {
  return database.Run(
      "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = "
      "excluded.value",
      name, value);
}

absl::StatusOr<int64_t> AddToMeta(const sqlite::Database& database, std::string_view name,
                                  int64_t amount) {
  ASSIGN_OR_RETURN(const int64_t value, GetMeta(database, name));
  RETURN_IF_ERROR(SetMeta(database, name, value + amount));
  return value + amount;
}

absl::StatusOr<int64_t> Environments::Of(const std::string& text, const Environment* environment) {
  Known& known = known_[text];
  if (known.id != 0 && (environment == nullptr || known.environment == *environment)) {
    return known.id;
  }
  if (environment != nullptr && environment->ToText() != text) {
    return absl::InvalidArgumentError(
        Concat("environment: must be the key's, ", text, ", is ", environment->ToText()));
  }
  ASSIGN_OR_RETURN(known.id, FindOrMake(text, environment));
  if (environment != nullptr) known.environment = *environment;
  return known.id;
}

absl::StatusOr<int64_t> Environments::FindOrMake(const std::string& text,
                                                 const Environment* environment) {
  EnvironmentRow row;
  {
    ASSIGN_OR_RETURN(sqlite::Statement statement,
                     database_->Prepare(Concat("SELECT ", TableOf<EnvironmentRow>().list,
                                               " FROM environments WHERE text = ?")));
    statement.Bind(text);
    ASSIGN_OR_RETURN(const bool found, statement.Step());
    if (found) {
      row.id = statement.Int(0);
      const absl::StatusOr<EnvironmentRow> stored = ReadRow<EnvironmentRow>(statement);
      if (stored.ok() && stored->text != text) return Damaged(*stored, kWrongRow);
      // One that is the same is left alone: SQLite looks at every tuning that refers to a row
      // whose key an upsert names.
      if (environment == nullptr || (stored.ok() && stored->environment == *environment)) {
        return row.id;
      }
    }
  }
  if (row.id == 0) {
    // Rows number themselves before they are written, since the number is part of the checksum.
    ASSIGN_OR_RETURN(row.id, database_->QueryInt("SELECT COALESCE(MAX(environment_id), 0) + 1 "
                                                 "FROM environments"));
  }
  row.text = text;
  if (environment != nullptr) {
    row.environment = *environment;
  } else {
    ASSIGN_OR_RETURN(row.environment, Environment::Parse(text));
  }
  row.name = row.environment.Name();
  RETURN_IF_ERROR(sqlite::PutRow(*database_, row));
  return row.id;
}

absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt) {
  std::map<int64_t, std::string> texts;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(database, "", corrupt, [&](EnvironmentRow row) {
    texts.emplace(row.id, std::move(row.text));
  }));
  return texts;
}

absl::StatusOr<std::vector<Environment>> ReadEnvironmentsInUse(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt) {
  std::string in_use;
  for (const char* table : {"tunings", "pins", "quarantine", "choices", "wanted"}) {
    AppendTo(&in_use, in_use.empty() ? "WHERE " : " OR ", "EXISTS (SELECT 1 FROM ", table,
             " t WHERE t.environment_id = environments.environment_id)");
  }
  std::vector<Environment> environments;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(
      database, in_use + " ORDER BY text", corrupt,
      [&](EnvironmentRow row) { environments.push_back(std::move(row.environment)); }));
  return environments;
}

absl::StatusOr<Tuning> ReadStoredTuning(const sqlite::Database& database, const TuningKey& key,
                                        SoundEnvironments* known) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> environment,
                   FindSound(database, key.environment_text, known));
  // All of it in one statement: it sees one state of the file by itself.
  static const std::string* const sql =
      new std::string(Concat("SELECT ", TableOf<TuningRow>().list, ", ", TableOf<SamplesRow>().list,
                             " FROM tunings LEFT JOIN tuning_samples USING (tuning_id) "
                             "WHERE tunings.environment_id = ? AND tunings.problem_text = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare(*sql));
  bool found = false;
  if (environment.has_value()) {
    statement.Bind(*environment, key.problem_text);
    ASSIGN_OR_RETURN(found, statement.Step());
  }
  if (!found) {
    return MissingError({"tuning", key.problem_text},
                        Concat("no tuning of ", key.problem_text, " in ", key.environment_text));
  }
  const int after_tuning = TableOf<TuningRow>().width();
  ASSIGN_OR_RETURN(const TuningRow row, ReadRow<TuningRow>(statement));
  if (row.environment_id != *environment || row.problem_text != key.problem_text) {
    return Damaged(row, kWrongRow);
  }
  ASSIGN_OR_RETURN(Tuning tuning, ToTuning(row));
  tuning.key.environment_text = key.environment_text;
  if (!statement.IsNull(after_tuning)) {
    ASSIGN_OR_RETURN(const SamplesRow samples, ReadRow<SamplesRow>(statement, after_tuning));
    RETURN_IF_ERROR(GetSamples(samples, &tuning.candidates));
  }
  return tuning;
}

absl::Status ForEachStoredTuning(sqlite::Database& database,
                                 const std::function<bool(StoredTuning)>& visit,
                                 const sqlite::CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  std::vector<std::pair<std::string, int64_t>> by_text;  // a damaged one has no text
  RETURN_IF_ERROR(database.ForEachRow(
      "SELECT environment_id FROM environments NOT INDEXED", [&](const sqlite::Statement& row) {
        const auto sound = environments.find(row.Int(0));
        by_text.emplace_back(sound == environments.end() ? "" : sound->second, row.Int(0));
      }));
  std::sort(by_text.begin(), by_text.end());
  // One after the other, in the order of an index: nothing is sorted.
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", TableOf<TuningRow>().list,
                                           " FROM tunings WHERE environment_id = ? "
                                           "ORDER BY problem_text")));
  bool wanted = true;
  for (const auto& [text, id] : by_text) {
    statement.Bind(id);
    while (wanted) {
      ASSIGN_OR_RETURN(const bool more, statement.Step());
      if (!more) break;
      absl::StatusOr<TuningRow> row = ReadRow<TuningRow>(statement);
      if (row.ok() && row->environment_id != id) row = Damaged(*row, kWrongRow);
      if (row.ok() && text.empty()) row = Damaged(*row, kLostEnvironment);
      if (row.ok()) {
        wanted = visit(ToStored(*std::move(row), text));
      } else {
        corrupt(std::string(row.status().message()));
      }
    }
    if (!wanted) return absl::OkStatus();
    statement.Reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StoreTuning(sqlite::Database& database, Environments* environments,
                                    const Tuning& tuning, const Environment& environment) {
  RETURN_IF_ERROR(CheckNumbers(tuning));
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   environments->Of(tuning.key.environment_text, &environment));
  // Rows number themselves before they are written, since the number is part of the checksum.
  ASSIGN_OR_RETURN(const int64_t id,
                   database.QueryInt("SELECT COALESCE(MAX(tuning_id), 0) + 1 FROM tunings"));
  RETURN_IF_ERROR(database.Run("DELETE FROM tunings WHERE environment_id = ? AND problem_text = ?",
                               environment_id, tuning.key.problem_text));
  RETURN_IF_ERROR(sqlite::InsertRow(database, ToRow(tuning, id, environment_id)));
  const SamplesRow samples = ToSamplesRow(id, tuning.candidates);
  if (samples.candidate_count > 0) RETURN_IF_ERROR(sqlite::InsertRow(database, samples));
  return environment_id;
}

}  // namespace convtune::db::store
