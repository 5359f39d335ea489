#include "db/store/tunings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "db/store/rows.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

using sqlite::ReadRow;
using sqlite::TableOf;

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

// Tunings whose environment is damaged: none of `environments`.
absl::Status TellOfLostEnvironments(const sqlite::Database& database,
                                    const std::map<int64_t, std::string>& environments,
                                    const sqlite::CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const int64_t rows, database.QueryInt("SELECT COUNT(*) FROM environments"));
  if (rows == static_cast<int64_t>(environments.size())) return absl::OkStatus();
  ASSIGN_OR_RETURN(sqlite::Statement tunings,
                   database.Prepare("SELECT environment_id, tuning_id, problem_text FROM tunings "
                                    "JOIN environments USING (environment_id)"));
  return tunings.ForEachRow([&] {
    if (!environments.contains(tunings.Int(0))) {
      corrupt(Concat("tunings row (tuning ", tunings.Int(1), ", ", tunings.Text(2),
                     "): its environment is damaged"));
    }
  });
}

// nullopt: there is no such environment.
absl::StatusOr<std::optional<int64_t>> FindSound(const sqlite::Database& database,
                                                 const std::string& text,
                                                 SoundEnvironments* known) {
  if (const auto found = known->find(text); found != known->end()) return found->second;
  std::optional<int64_t> id;
  absl::Status damage;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(
      database, "WHERE text = ?",
      [&](const std::string& what) { damage = absl::DataLossError(what); },
      [&](const EnvironmentRow& row) {
        id = row.id;
        if (row.text != text) damage = sqlite::Damaged(row, kWrongRow);
      },
      text));
  RETURN_IF_ERROR(damage);
  if (id.has_value()) known->emplace(text, *id);
  return id;
}

absl::Status CheckNumbers(const Tuning& tuning) {
  for (size_t i = 0; i < tuning.candidates.size(); ++i) {
    const Candidate& candidate = tuning.candidates[i];
    const struct {
      const char* field;
      double value;
    } numbers[] = {{"median_us", candidate.median_us},
                   {"q1_us", candidate.q1_us},
                   {"q3_us", candidate.q3_us},
                   {"low_us", candidate.low_us},
                   {"high_us", candidate.high_us},
                   {"host_us", candidate.host_us},
                   {"sm_clock_mhz", candidate.sm_clock_mhz},
                   {"error", candidate.error.value_or(0)},
                   {"find_us", candidate.find_us}};
    for (const auto& number : numbers) {
      if (!std::isfinite(static_cast<float>(number.value))) {
        return absl::InvalidArgumentError(
            Concat("candidates[", i, "].", number.field, ": must be a finite number"));
      }
    }
    for (const TimeSummary& time : candidate.other_times) {
      if (!std::isfinite(static_cast<float>(time.median_us + time.low_us + time.high_us))) {
        return absl::InvalidArgumentError(
            Concat("candidates[", i, "].other_times: must be finite numbers"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

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
    return sqlite::Damaged(row, kWrongRow);
  }
  ASSIGN_OR_RETURN(Tuning tuning, ToTuning(row));
  tuning.key.environment_text = key.environment_text;
  if (statement.At(after_tuning) != sqlite::Value(nullptr)) {
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
  std::vector<std::pair<std::string, int64_t>> by_text;
  for (const auto& [id, text] : environments) by_text.emplace_back(text, id);
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
      if (row.ok() && row->environment_id != id) row = sqlite::Damaged(*row, kWrongRow);
      if (row.ok()) {
        wanted = visit(ToStored(*std::move(row), text));
      } else {
        corrupt(std::string(row.status().message()));
      }
    }
    if (!wanted) return absl::OkStatus();
    statement.Reset();
  }
  return TellOfLostEnvironments(database, environments, corrupt);
}

absl::StatusOr<int64_t> StoreTuning(sqlite::Database& database, Environments* environments,
                                    const Tuning& tuning, const Environment& environment) {
  RETURN_IF_ERROR(CheckNumbers(tuning));
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   environments->Of(tuning.key.environment_text, environment));
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
