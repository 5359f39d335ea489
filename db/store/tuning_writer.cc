#include "db/store/tuning_writer.h"

#include <cmath>
#include <optional>

#include "db/store/outbox_tables.h"
#include "db/store/tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/missing.h"

namespace convtune::db::store {
namespace {

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

// Rows number themselves before they are written, since the number is part of
// the checksum.
absl::StatusOr<int64_t> NextId(const sqlite::Database& database, const sqlite::Table& table) {
  return database.QueryInt(
      Concat("SELECT COALESCE(MAX(", table.columns[0], "), 0) + 1 FROM ", table.name));
}

// Makes the row, or replaces it, which also mends a damaged one. One that is the
// same is left alone: SQLite looks at every tuning that refers to a row whose
// key an upsert names. DATA_LOSS: the text leads to the row of another one, which must
// not be replaced.
absl::StatusOr<int64_t> UpsertEnvironment(sqlite::Database& database, const std::string& text,
                                          const Environment& environment) {
  EnvironmentRow row;
  row.text = text;
  row.environment = environment;
  {
    ASSIGN_OR_RETURN(sqlite::Statement known,
                     database.Prepare(Concat("SELECT ", EnvironmentTable().SelectList("e"),
                                             " FROM environments e WHERE text = ?")));
    known.BindText(1, text);
    ASSIGN_OR_RETURN(const bool found, known.Step());
    if (found) {
      row.id = known.Int(0);
      const absl::StatusOr<EnvironmentRow> stored = ReadEnvironment(known);
      if (stored.ok() && stored->text != text) {
        return Damaged(EnvironmentTable(), stored->text, kWrongRow);
      }
      if (stored.ok() && stored->environment == environment) return row.id;
    } else {
      ASSIGN_OR_RETURN(row.id, NextId(database, EnvironmentTable()));
    }
  }
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(EnvironmentTable().UpsertSql("environment_id")));
  RETURN_IF_ERROR(WriteEnvironment(row, statement));
  return row.id;
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> FindEnvironment(const sqlite::Database& database,
                                                       const std::string& text) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", EnvironmentTable().SelectList("e"),
                                           " FROM environments e WHERE text = ?")));
  statement.BindText(1, text);
  ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return std::nullopt;
  const absl::StatusOr<EnvironmentRow> row = ReadEnvironment(statement);
  if (row.ok() && row->text != text) return Damaged(EnvironmentTable(), row->text, kWrongRow);
  return statement.Int(0);
}

absl::StatusOr<int64_t> EraseByKey(sqlite::Database& database, std::string_view table,
                                   const TuningKey& key) {
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(Concat("DELETE FROM ", table,
                              " WHERE problem_text = ? AND environment_id IN "
                              "(SELECT environment_id FROM environments WHERE text = ?)")));
  statement.BindText(1, key.problem_text);
  statement.BindText(2, key.environment_text);
  RETURN_IF_ERROR(statement.Run());
  return database.Changes();
}

absl::StatusOr<int64_t> EnsureEnvironment(sqlite::Database& database, const std::string& text) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, FindEnvironment(database, text));
  if (id.has_value()) {
    return *id;
  }
  ASSIGN_OR_RETURN(const Environment environment, Environment::Parse(text));
  return UpsertEnvironment(database, text, environment);
}

absl::StatusOr<TuningWriter> TuningWriter::Create(sqlite::Database& database) {
  ASSIGN_OR_RETURN(
      sqlite::Statement erase,
      database.Prepare("DELETE FROM tunings WHERE environment_id = ? AND problem_text = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement tuning, database.Prepare(TuningTable().InsertSql()));
  ASSIGN_OR_RETURN(sqlite::Statement samples, database.Prepare(SamplesTable().InsertSql()));
  ASSIGN_OR_RETURN(const int64_t next_id, NextId(database, TuningTable()));
  return TuningWriter(&database, std::move(erase), std::move(tuning), std::move(samples), next_id);
}

absl::StatusOr<int64_t> TuningWriter::EnvironmentId(const std::string& text,
                                                    const Environment& environment) {
  if (const auto known = environments_.find(text);
      known != environments_.end() && known->second.environment == environment) {
    return known->second.id;
  }
  if (environment.ToText() != text) {
    return absl::InvalidArgumentError(
        Concat("environment: must be the key's, ", text, ", is ", environment.ToText()));
  }
  ASSIGN_OR_RETURN(const int64_t id, UpsertEnvironment(*database_, text, environment));
  environments_.insert_or_assign(text, Known{environment, id});
  return id;
}

absl::Status TuningWriter::Store(const Tuning& tuning, const Environment& environment) {
  RETURN_IF_ERROR(CheckNumbers(tuning));
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   EnvironmentId(tuning.key.environment_text, environment));
  erase_.BindInt(1, environment_id);
  erase_.BindLastingText(2, tuning.key.problem_text);
  RETURN_IF_ERROR(erase_.Run());
  const int64_t tuning_id = next_id_++;
  RETURN_IF_ERROR(WriteTuning(tuning_id, environment_id, tuning, tuning_));
  if (CandidatesWithSamples(tuning.candidates) == 0) return absl::OkStatus();
  return WriteSamples(tuning_id, tuning.candidates, samples_);
}

absl::StatusOr<int64_t> EraseTunings(sqlite::Database& database,
                                     const std::vector<TuningKey>& keys) {
  int64_t erased = 0;
  for (const TuningKey& key : keys) {
    ASSIGN_OR_RETURN(const int64_t rows, EraseByKey(database, TuningTable().name, key));
    erased += rows;
  }
  return erased;
}

absl::Status StorePin(sqlite::Database& database, const Pin& pin) {
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   EnsureEnvironment(database, pin.key.environment_text));
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(PinTable().UpsertSql("environment_id, problem_text")));
  return WritePin(environment_id, pin, statement);
}

absl::Status ErasePin(sqlite::Database& database, const TuningKey& key) {
  ASSIGN_OR_RETURN(const int64_t rows, EraseByKey(database, PinTable().name, key));
  if (rows == 0) {
    return MissingError({"pin", key.problem_text},
                        Concat("no pin of ", key.problem_text, " in ", key.environment_text));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StoreBan(sqlite::Database& database, Ban ban) {
  constexpr char kSequence[] = "ban_sequence";
  ASSIGN_OR_RETURN(const int64_t last, ReadMeta(database, kSequence));
  ban.number = last + 1;
  RETURN_IF_ERROR(WriteMeta(database, kSequence, ban.number));
  ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare(BanTable().InsertSql()));
  RETURN_IF_ERROR(WriteBan(ban, statement));
  return ban.number;
}

absl::Status EraseBan(sqlite::Database& database, int64_t number) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare("DELETE FROM bans WHERE ban_number = ?"));
  statement.BindInt(1, number);
  RETURN_IF_ERROR(statement.Run());
  if (database.Changes() > 0) return absl::OkStatus();
  return MissingError({"ban", Concat("bans/", number)}, Concat("ban: there is no bans/", number));
}

absl::Status StoreQuarantine(sqlite::Database& database, const QuarantineEntry& entry) {
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   EnsureEnvironment(database, entry.key.environment_text));
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(QuarantineTable().UpsertSql("environment_id, problem_text, candidate")));
  return WriteQuarantine(environment_id, entry, statement);
}

absl::Status EraseQuarantine(sqlite::Database& database, const TuningKey& key,
                             const std::vector<CandidateId>& candidates) {
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(
          "DELETE FROM quarantine WHERE problem_text = ? AND candidate = ? AND "
          "environment_id IN (SELECT environment_id FROM environments WHERE text = ?)"));
  for (const CandidateId& candidate : candidates) {
    statement.BindText(1, key.problem_text);
    statement.BindText(2, ToText(candidate));
    statement.BindText(3, key.environment_text);
    RETURN_IF_ERROR(statement.Run());
  }
  return absl::OkStatus();
}

}  // namespace convtune::db::store
