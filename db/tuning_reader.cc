#include "db/tuning_reader.h"

#include <map>
#include <utility>

#include "db/measurement_tables.h"
#include "db/tables.h"
#include "db/transaction.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

// The candidates of `row`, without samples, into its tuning. DATA_LOSS if one
// is damaged or missing.
absl::Status ReadCandidates(Statement& statement, TuningRow* row) {
  statement.Reset();
  statement.BindInt(1, row->id);
  std::vector<Candidate>& candidates = row->tuning.candidates;
  candidates.reserve(static_cast<size_t>(row->candidate_count));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      break;
    }
    ASSIGN_OR_RETURN(CandidateRow candidate, ReadCandidate(statement));
    if (candidate.position != static_cast<int64_t>(candidates.size())) {
      break;
    }
    candidates.push_back(std::move(candidate.candidate));
  }
  if (static_cast<int64_t>(candidates.size()) != row->candidate_count) {
    return absl::DataLossError(Concat("tunings row (tuning ", row->id, ", ",
                                      row->tuning.key.problem_text, "): a candidate is missing"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Statement> PrepareCandidates(const Database& database) {
  return database.Prepare(Concat("SELECT ", CandidateTable().SelectList("c"),
                                 " FROM candidates c WHERE c.tuning_id = ? "
                                 "ORDER BY c.position"));
}

absl::Status ReadAllSamples(Statement& statement, int64_t tuning_id,
                            std::vector<Candidate>* candidates) {
  statement.Reset();
  statement.BindInt(1, tuning_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(SampleRow row, ReadSamples(statement));
    // The foreign key holds the position within the candidates.
    if (row.position >= 0 && row.position < static_cast<int64_t>(candidates->size())) {
      (*candidates)[static_cast<size_t>(row.position)].samples_us = std::move(row.samples_us);
    }
  }
}

// Pins and quarantine entries differ in their rows only.
template <typename Value, typename Read>
absl::StatusOr<std::vector<Value>> ReadKeyed(Database& database, const Table& table,
                                             const CorruptRowSink& corrupt, const Read& read) {
  ASSIGN_OR_RETURN(const Transaction transaction, Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(Statement statement,
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

absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(const Database& database,
                                                                    const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(Statement statement,
                   database.Prepare(Concat("SELECT ", EnvironmentTable().SelectList("e"),
                                           " FROM environments e")));
  std::map<int64_t, std::string> texts;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return texts;
    }
    absl::StatusOr<EnvironmentRow> row = ReadEnvironment(statement);
    if (row.ok()) {
      texts.emplace(row->id, std::move(row->text));
    } else {
      corrupt(std::string(row.status().message()));
    }
  }
}

absl::StatusOr<StoredTuningReader> StoredTuningReader::Create(Database* database) {
  ASSIGN_OR_RETURN(
      Statement tuning,
      database->Prepare(Concat("SELECT ", TuningTable().SelectList("t"), ", ",
                               EnvironmentTable().SelectList("e"),
                               " FROM tunings t JOIN environments e USING (environment_id) "
                               "WHERE e.text = ? AND t.problem_text = ?")));
  ASSIGN_OR_RETURN(Statement candidates, PrepareCandidates(*database));
  ASSIGN_OR_RETURN(Statement samples,
                   database->Prepare(Concat("SELECT ", SampleTable().SelectList("s"),
                                            " FROM samples s WHERE s.tuning_id = ?")));
  ASSIGN_OR_RETURN(MeasurementReader measurements, MeasurementReader::Create(*database));
  return StoredTuningReader(database, std::move(tuning), std::move(candidates), std::move(samples),
                            std::move(measurements));
}

absl::StatusOr<Tuning> StoredTuningReader::Read(const TuningKey& key) {
  ASSIGN_OR_RETURN(const Transaction transaction, Transaction::BeginRead(*database_));
  absl::StatusOr<Tuning> tuning = ReadAll(key);
  // One that stands at a row would keep the transaction open.
  Reset();
  return tuning;
}

void StoredTuningReader::Reset() {
  tuning_.Reset();
  candidates_.Reset();
  samples_.Reset();
  measurements_.Reset();
}

absl::StatusOr<Tuning> StoredTuningReader::ReadAll(const TuningKey& key) {
  tuning_.BindText(1, key.environment_text);
  tuning_.BindText(2, key.problem_text);
  ASSIGN_OR_RETURN(const bool found, tuning_.Step());
  if (!found) {
    return absl::NotFoundError(
        Concat("no tuning of ", key.problem_text, " in ", key.environment_text));
  }
  ASSIGN_OR_RETURN(TuningRow row, ReadTuning(tuning_));
  ASSIGN_OR_RETURN(EnvironmentRow environment,
                   ReadEnvironment(tuning_, static_cast<int>(TuningTable().columns.size()) + 1));
  row.tuning.key.environment_text = std::move(environment.text);
  RETURN_IF_ERROR(ReadCandidates(candidates_, &row));
  RETURN_IF_ERROR(measurements_.Read(row.id, &row.tuning));
  RETURN_IF_ERROR(ReadAllSamples(samples_, row.id, &row.tuning.candidates));
  return std::move(row.tuning);
}

absl::Status ForEachStoredTuning(Database& database, const std::function<bool(Tuning)>& visit,
                                 const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const Transaction transaction, Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  ASSIGN_OR_RETURN(
      Statement statement,
      database.Prepare(Concat("SELECT ", TuningTable().SelectList("t"),
                              " FROM tunings t LEFT JOIN environments e USING (environment_id) "
                              "ORDER BY e.text, t.problem_text")));
  ASSIGN_OR_RETURN(Statement candidates, PrepareCandidates(database));
  ASSIGN_OR_RETURN(MeasurementReader measurements, MeasurementReader::Create(database));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return absl::OkStatus();
    }
    absl::StatusOr<TuningRow> row = ReadTuning(statement);
    absl::Status status = row.status();
    if (status.ok()) {
      const auto environment = environments.find(row->environment_id);
      if (environment == environments.end()) {
        status = absl::DataLossError(Concat("tunings row (tuning ", row->id, ", ",
                                            row->tuning.key.problem_text,
                                            "): its environment is damaged"));
      } else {
        row->tuning.key.environment_text = environment->second;
        status = ReadCandidates(candidates, &*row);
      }
    }
    if (status.ok()) {
      status = measurements.Read(row->id, &row->tuning);
    }
    if (status.ok()) {
      if (!visit(std::move(row->tuning))) return absl::OkStatus();
    } else if (absl::IsDataLoss(status)) {
      corrupt(std::string(status.message()));
    } else {
      return status;
    }
  }
}

absl::StatusOr<std::vector<Environment>> ReadStoredEnvironments(Database& database,
                                                                const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const Transaction transaction, Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(
      Statement statement,
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
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) {
      return environments;
    }
    absl::StatusOr<EnvironmentRow> row = ReadEnvironment(statement);
    if (row.ok()) {
      environments.push_back(std::move(row->environment));
    } else {
      corrupt(std::string(row.status().message()));
    }
  }
}

absl::StatusOr<std::vector<Pin>> ReadStoredPins(Database& database, const CorruptRowSink& corrupt) {
  return ReadKeyed<Pin>(database, PinTable(), corrupt,
                        [](const Statement& statement) -> absl::StatusOr<Pin> {
                          ASSIGN_OR_RETURN(PinRow row, ReadPin(statement));
                          return std::move(row.pin);
                        });
}

absl::StatusOr<std::vector<QuarantineEntry>> ReadStoredQuarantine(Database& database,
                                                                  const CorruptRowSink& corrupt) {
  return ReadKeyed<QuarantineEntry>(
      database, QuarantineTable(), corrupt,
      [](const Statement& statement) -> absl::StatusOr<QuarantineEntry> {
        ASSIGN_OR_RETURN(QuarantineRow row, ReadQuarantine(statement));
        return std::move(row.entry);
      });
}

}  // namespace convtune
