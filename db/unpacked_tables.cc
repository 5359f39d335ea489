#include "db/unpacked_tables.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "db/row_codec.h"
#include "db/tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

absl::Status Damaged(const Table& table, int64_t tuning_id, std::string_view what) {
  return absl::DataLossError(Concat(table.name, " row (tuning ", tuning_id, "): ", what));
}

constexpr char kBadNumber[] = "a number that means nothing to this program";

template <typename E>
bool InRange(E value, E first, E last) {
  return value >= first && value <= last;
}

const Table& CandidateTable() {
  static const Table table{
      "candidates",
      {"tuning_id", "position", "candidate", "numerical_notes", "behavior_notes", "deterministic",
       "workspace_bytes", "heuristic_rank", "status", "error_message", "median_us", "q1_us",
       "q3_us", "sample_count", "find_us"}};
  return table;
}

const Table& SampleTable() {
  static const Table table{"samples", {"tuning_id", "position", "samples"}};
  return table;
}

const Table& ConditionsTable() {
  static const Table table{"tuning_conditions",
                           {"tuning_id", "stop_reason", "rounds", "cache_state", "known",
                            "other_processes", "clock_reasons", "power_limit_watts",
                            "temperature_celsius", "ecc_errors", "mig", "mps", "compute_mode"}};
  return table;
}

const Table& MeasurementTable() {
  static const Table table{"measurements",
                           {"tuning_id", "position", "low_us", "high_us", "host_us", "sm_clock_mhz",
                            "error", "capture"}};
  return table;
}

const Table& OtherTimesTable() {
  static const Table table{"other_times",
                           {"tuning_id", "position", "launch", "cache_state", "median_us", "low_us",
                            "high_us", "sample_count"}};
  return table;
}

const Table& TuningTable5() {
  static const Table table{"tunings",
                           {TuningTable().columns.begin(), std::prev(TuningTable().columns.end())}};
  return table;
}

const Table& QuarantineTable5() {
  static const Table table{
      "quarantine", {"environment_id", "problem_text", "candidate", "reason", "create_time_us"}};
  return table;
}

absl::StatusOr<Statement> PrepareSelect(const Database& database, const Table& table) {
  return database.Prepare(Concat("SELECT ", table.SelectList("t"), " FROM ", table.name,
                                 " t WHERE t.tuning_id = ? ORDER BY 2, 3, 4"));
}

// The candidate at the row's position; nullptr if there is none.
Candidate* At(int64_t position, Tuning* tuning) {
  if (position < 0 || position >= static_cast<int64_t>(tuning->candidates.size())) return nullptr;
  return &tuning->candidates[static_cast<size_t>(position)];
}

std::vector<float> DecodeSamples(std::string_view blob) {
  std::vector<float> samples_us;
  samples_us.reserve(blob.size() / 4);
  for (size_t i = 0; i + 4 <= blob.size(); i += 4) {
    uint32_t bits = 0;
    for (size_t byte = 0; byte < 4; ++byte) {
      bits |= static_cast<uint32_t>(static_cast<unsigned char>(blob[i + byte])) << (8 * byte);
    }
    samples_us.push_back(std::bit_cast<float>(bits));
  }
  return samples_us;
}

struct CandidateRow {
  int64_t position = 0;
  Candidate candidate;  // without samples
};

absl::StatusOr<CandidateRow> ReadCandidate(const Statement& statement) {
  RowReader reader(CandidateTable(), statement);
  CandidateRow row;
  const int64_t tuning_id = reader.Int();
  row.position = reader.Int();
  const std::string id = reader.Text();
  const auto damaged = [tuning_id](std::string_view what) {
    return Damaged(CandidateTable(), tuning_id, what);
  };
  if (!reader.ChecksumMatches()) return damaged(kBadChecksum);
  Candidate& candidate = row.candidate;
  absl::StatusOr<CandidateId> candidate_id = ParseCandidateId(id);
  if (!candidate_id.ok()) return damaged(std::string(candidate_id.status().message()));
  candidate.id = *std::move(candidate_id);
  candidate.numerical_notes = static_cast<uint32_t>(reader.Int());
  candidate.behavior_notes = static_cast<uint32_t>(reader.Int());
  candidate.deterministic = reader.Int() != 0;
  candidate.workspace_bytes = reader.Int();
  candidate.heuristic_rank = static_cast<int>(reader.Int());
  candidate.status = static_cast<CandidateStatus>(reader.Int());
  candidate.error_message = reader.Text();
  candidate.median_us = reader.Real();
  candidate.q1_us = reader.Real();
  candidate.q3_us = reader.Real();
  candidate.sample_count = static_cast<int>(reader.Int());
  candidate.find_us = reader.Real();
  if (candidate.status < CandidateStatus::kTimed ||
      candidate.status > CandidateStatus::kQuarantined) {
    return damaged("unknown status");
  }
  return row;
}

// Reads all but the tuning's own row. Not thread-safe; must not outlive the
// database.
class UnpackedReader {
 public:
  static absl::StatusOr<UnpackedReader> Create(const Database& database) {
    ASSIGN_OR_RETURN(Statement candidates, PrepareSelect(database, CandidateTable()));
    ASSIGN_OR_RETURN(Statement samples,
                     database.Prepare(Concat("SELECT ", SampleTable().SelectList("t"),
                                             " FROM samples t WHERE t.tuning_id = ?")));
    ASSIGN_OR_RETURN(Statement conditions, PrepareSelect(database, ConditionsTable()));
    ASSIGN_OR_RETURN(Statement measurements, PrepareSelect(database, MeasurementTable()));
    ASSIGN_OR_RETURN(Statement other_times, PrepareSelect(database, OtherTimesTable()));
    return UnpackedReader(std::move(candidates), std::move(samples), std::move(conditions),
                          std::move(measurements), std::move(other_times));
  }

  // DATA_LOSS if a row of it is damaged or missing, but for its samples. What has
  // no measurement keeps the quartiles as its interval.
  absl::Status Read(TuningRow* row) {
    RETURN_IF_ERROR(ReadCandidates(row));
    for (Candidate& candidate : row->tuning.candidates) {
      candidate.low_us = candidate.q1_us;
      candidate.high_us = candidate.q3_us;
    }
    RETURN_IF_ERROR(ReadConditions(row->id, &row->tuning));
    RETURN_IF_ERROR(ReadMeasurements(row->id, &row->tuning));
    RETURN_IF_ERROR(ReadOtherTimes(row->id, &row->tuning));
    return ReadSamples(row->id, &row->tuning);
  }

 private:
  UnpackedReader(Statement candidates, Statement samples, Statement conditions,
                 Statement measurements, Statement other_times)
      : candidates_(std::move(candidates)),
        samples_(std::move(samples)),
        conditions_(std::move(conditions)),
        measurements_(std::move(measurements)),
        other_times_(std::move(other_times)) {}

  absl::Status ReadCandidates(TuningRow* row);
  absl::Status ReadConditions(int64_t tuning_id, Tuning* tuning);
  absl::Status ReadMeasurements(int64_t tuning_id, Tuning* tuning);
  absl::Status ReadOtherTimes(int64_t tuning_id, Tuning* tuning);
  absl::Status ReadSamples(int64_t tuning_id, Tuning* tuning);

  Statement candidates_;
  Statement samples_;
  Statement conditions_;
  Statement measurements_;
  Statement other_times_;
};

absl::Status UnpackedReader::ReadCandidates(TuningRow* row) {
  candidates_.Reset();
  candidates_.BindInt(1, row->id);
  std::vector<Candidate>& candidates = row->tuning.candidates;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, candidates_.Step());
    if (!more) break;
    ASSIGN_OR_RETURN(CandidateRow candidate, ReadCandidate(candidates_));
    if (candidate.position != static_cast<int64_t>(candidates.size())) break;
    candidates.push_back(std::move(candidate.candidate));
  }
  return static_cast<int64_t>(candidates.size()) == row->candidate_count
             ? absl::OkStatus()
             : Damaged(TuningTable(), row->id, "a candidate is missing");
}

absl::Status UnpackedReader::ReadConditions(int64_t tuning_id, Tuning* tuning) {
  conditions_.Reset();
  conditions_.BindInt(1, tuning_id);
  ASSIGN_OR_RETURN(const bool found, conditions_.Step());
  if (!found) return absl::OkStatus();
  RowReader reader(ConditionsTable(), conditions_);
  if (!reader.ChecksumMatches()) return Damaged(ConditionsTable(), tuning_id, kBadChecksum);
  reader.Skip();
  tuning->stop_reason = static_cast<StopReason>(reader.Int());
  tuning->rounds = static_cast<int>(reader.Int());
  tuning->cache_state = static_cast<CacheState>(reader.Int());
  Conditions& conditions = tuning->conditions;
  conditions.known = reader.Int() != 0;
  conditions.other_processes = static_cast<int>(reader.Int());
  conditions.clock_reasons = static_cast<uint32_t>(reader.Int());
  conditions.power_limit_watts = reader.Real();
  conditions.temperature_celsius = static_cast<int>(reader.Int());
  conditions.ecc_errors = reader.Int();
  conditions.mig = reader.Int() != 0;
  conditions.mps = reader.Int() != 0;
  conditions.compute_mode = static_cast<ComputeMode>(reader.Int());
  if (!InRange(tuning->stop_reason, StopReason::kNone, StopReason::kBudget) ||
      !InRange(tuning->cache_state, CacheState::kCold, CacheState::kHot) ||
      !InRange(conditions.compute_mode, ComputeMode::kUnknown, ComputeMode::kExclusiveProcess)) {
    return Damaged(ConditionsTable(), tuning_id, kBadNumber);
  }
  return absl::OkStatus();
}

absl::Status UnpackedReader::ReadMeasurements(int64_t tuning_id, Tuning* tuning) {
  measurements_.Reset();
  measurements_.BindInt(1, tuning_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, measurements_.Step());
    if (!more) return absl::OkStatus();
    RowReader reader(MeasurementTable(), measurements_);
    if (!reader.ChecksumMatches()) return Damaged(MeasurementTable(), tuning_id, kBadChecksum);
    reader.Skip();
    Candidate* candidate = At(reader.Int(), tuning);
    if (candidate == nullptr) return Damaged(MeasurementTable(), tuning_id, kBadNumber);
    candidate->low_us = reader.Real();
    candidate->high_us = reader.Real();
    candidate->host_us = reader.Real();
    candidate->sm_clock_mhz = reader.Real();
    if (reader.NextIsNull()) {
      reader.Skip();
    } else {
      candidate->error = reader.Real();
    }
    candidate->capture = static_cast<CaptureSupport>(reader.Int());
    if (!InRange(candidate->capture, CaptureSupport::kUnknown, CaptureSupport::kNo)) {
      return Damaged(MeasurementTable(), tuning_id, kBadNumber);
    }
  }
}

absl::Status UnpackedReader::ReadOtherTimes(int64_t tuning_id, Tuning* tuning) {
  other_times_.Reset();
  other_times_.BindInt(1, tuning_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, other_times_.Step());
    if (!more) return absl::OkStatus();
    RowReader reader(OtherTimesTable(), other_times_);
    if (!reader.ChecksumMatches()) return Damaged(OtherTimesTable(), tuning_id, kBadChecksum);
    reader.Skip();
    Candidate* candidate = At(reader.Int(), tuning);
    TimeSummary time;
    time.launch = static_cast<LaunchMode>(reader.Int());
    time.cache_state = static_cast<CacheState>(reader.Int());
    time.median_us = reader.Real();
    time.low_us = reader.Real();
    time.high_us = reader.Real();
    time.sample_count = static_cast<int>(reader.Int());
    if (candidate == nullptr ||
        !InRange(time.launch, LaunchMode::kEager, LaunchMode::kGraphCapture) ||
        !InRange(time.cache_state, CacheState::kCold, CacheState::kHot)) {
      return Damaged(OtherTimesTable(), tuning_id, kBadNumber);
    }
    candidate->other_times.push_back(time);
  }
}

absl::Status UnpackedReader::ReadSamples(int64_t tuning_id, Tuning* tuning) {
  samples_.Reset();
  samples_.BindInt(1, tuning_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, samples_.Step());
    if (!more) return absl::OkStatus();
    RowReader reader(SampleTable(), samples_);
    reader.Skip();
    Candidate* candidate = At(reader.Int(), tuning);
    if (candidate == nullptr || !reader.ChecksumMatches()) continue;
    candidate->samples_us = DecodeSamples(reader.Blob());
  }
}

absl::Status PackAll(Database& database) {
  ASSIGN_OR_RETURN(Statement tunings,
                   database.Prepare(Concat("SELECT ", TuningTable5().SelectList("t"),
                                           " FROM tunings t ORDER BY t.tuning_id")));
  ASSIGN_OR_RETURN(UnpackedReader reader, UnpackedReader::Create(database));
  ASSIGN_OR_RETURN(Statement candidates, database.Prepare(CandidatesTable().InsertSql()));
  ASSIGN_OR_RETURN(Statement samples, database.Prepare(SamplesTable().InsertSql()));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, tunings.Step());
    if (!more) return absl::OkStatus();
    absl::StatusOr<TuningRow> row = ReadTuning(tunings, 0, TuningTable5());
    absl::Status status = row.status();
    if (status.ok()) status = reader.Read(&*row);
    if (absl::IsDataLoss(status)) continue;
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(WriteCandidates(row->id, row->tuning, candidates));
    const bool any = std::any_of(row->tuning.candidates.begin(), row->tuning.candidates.end(),
                                 [](const Candidate& c) { return !c.samples_us.empty(); });
    if (any) RETURN_IF_ERROR(WriteSamples(row->id, row->tuning.candidates, samples));
  }
}

absl::Status NumberTunings(Database& database) {
  ASSIGN_OR_RETURN(Statement tunings,
                   database.Prepare(Concat("SELECT ", TuningTable5().SelectList("t"),
                                           " FROM tunings t ORDER BY t.tuning_id")));
  ASSIGN_OR_RETURN(
      Statement update,
      database.Prepare(
          "UPDATE tunings SET evidence = ?, incomplete = ?, checksum = ? WHERE tuning_id = ?"));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, tunings.Step());
    if (!more) return absl::OkStatus();
    absl::StatusOr<TuningRow> row = ReadTuning(tunings, 0, TuningTable5());
    if (absl::IsDataLoss(row.status())) continue;
    RETURN_IF_ERROR(row.status());
    ReadReasonsOfWords(&row->tuning);
    const auto evidence = static_cast<int>(row->tuning.evidence);
    RowEncoding encoding(TuningTable().name);
    for (int column = 0; column < static_cast<int>(TuningTable5().columns.size()); ++column) {
      if (TuningTable5().columns[static_cast<size_t>(column)] == "evidence") {
        encoding.Int(evidence);
      } else {
        encoding.Column(tunings, column);
      }
    }
    encoding.Int(row->tuning.incomplete);
    update.Reset();
    update.BindInt(1, evidence);
    update.BindInt(2, row->tuning.incomplete);
    update.BindInt(3, encoding.Checksum());
    update.BindInt(4, row->id);
    RETURN_IF_ERROR(update.Run());
  }
}

absl::Status NumberQuarantine(Database& database) {
  ASSIGN_OR_RETURN(Statement old,
                   database.Prepare(Concat("SELECT ", QuarantineTable5().SelectList("q"),
                                           " FROM quarantine_5 q ORDER BY 1, 2, 3")));
  ASSIGN_OR_RETURN(Statement insert, database.Prepare(QuarantineTable().InsertSql()));
  while (true) {
    ASSIGN_OR_RETURN(const bool more, old.Step());
    if (!more) return absl::OkStatus();
    RowReader reader(QuarantineTable5(), old);
    if (!reader.ChecksumMatches()) continue;
    const int64_t environment_id = reader.Int();
    QuarantineEntry entry;
    entry.key.problem_text = reader.Text();
    const absl::StatusOr<CandidateId> candidate = ParseCandidateId(reader.Text());
    if (!candidate.ok()) continue;
    entry.candidate = *candidate;
    entry.message = reader.Text();
    entry.create_time = absl::FromUnixMicros(reader.Int());
    ReadReasonOfMessage(&entry);
    RETURN_IF_ERROR(WriteQuarantine(environment_id, entry, insert));
  }
}

}  // namespace

absl::Status NumberReasons(Database& database) {
  RETURN_IF_ERROR(NumberTunings(database));
  RETURN_IF_ERROR(NumberQuarantine(database));
  return database.Execute("DROP TABLE quarantine_5");
}

absl::Status PackUnpackedRows(Database& database) {
  RETURN_IF_ERROR(PackAll(database));
  // Children before their parents.
  return database.Execute(
      "DROP TABLE other_times; DROP TABLE measurements; DROP TABLE samples;"
      "DROP TABLE candidates; DROP TABLE tuning_conditions");
}

}  // namespace convtune
