#include "db/measurement_tables.h"

#include <string>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

absl::Status Damaged(const Table& table, int64_t tuning_id, std::string_view what) {
  return absl::DataLossError(Concat(table.name, " row (tuning ", tuning_id, "): ", what));
}

constexpr char kBadChecksum[] = "the checksum does not match";
constexpr char kBadNumber[] = "a number that means nothing to this program";

template <typename E>
bool InRange(E value, E first, E last) {
  return value >= first && value <= last;
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

bool HasMeasurement(const Candidate& candidate) {
  return candidate.timed() || candidate.error.has_value() ||
         candidate.capture != CaptureSupport::kUnknown || !candidate.other_times.empty();
}

absl::Status WriteConditions(int64_t tuning_id, const Tuning& tuning, Statement& statement) {
  const Conditions& conditions = tuning.conditions;
  return RowWriter(ConditionsTable(), statement)
      .Int(tuning_id)
      .Int(static_cast<int>(tuning.stop_reason))
      .Int(tuning.rounds)
      .Int(static_cast<int>(tuning.cache_state))
      .Int(conditions.known ? 1 : 0)
      .Int(conditions.other_processes)
      .Int(conditions.clock_reasons)
      .Real(conditions.power_limit_watts)
      .Int(conditions.temperature_celsius)
      .Int(conditions.ecc_errors)
      .Int(conditions.mig ? 1 : 0)
      .Int(conditions.mps ? 1 : 0)
      .Int(static_cast<int>(conditions.compute_mode))
      .Insert();
}

absl::Status WriteMeasurement(int64_t tuning_id, int64_t position, const Candidate& candidate,
                              Statement& statement) {
  RowWriter writer(MeasurementTable(), statement);
  writer.Int(tuning_id)
      .Int(position)
      .Real(candidate.low_us)
      .Real(candidate.high_us)
      .Real(candidate.host_us)
      .Real(candidate.sm_clock_mhz);
  if (candidate.error.has_value()) {
    writer.Real(*candidate.error);
  } else {
    writer.Null();
  }
  return writer.Int(static_cast<int>(candidate.capture)).Insert();
}

absl::Status WriteOtherTime(int64_t tuning_id, int64_t position, const TimeSummary& time,
                            Statement& statement) {
  return RowWriter(OtherTimesTable(), statement)
      .Int(tuning_id)
      .Int(position)
      .Int(static_cast<int>(time.launch))
      .Int(static_cast<int>(time.cache_state))
      .Real(time.median_us)
      .Real(time.low_us)
      .Real(time.high_us)
      .Int(time.sample_count)
      .Insert();
}

}  // namespace

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

absl::StatusOr<MeasurementWriter> MeasurementWriter::Create(const Database& database) {
  ASSIGN_OR_RETURN(Statement conditions, database.Prepare(ConditionsTable().InsertSql()));
  ASSIGN_OR_RETURN(Statement measurement, database.Prepare(MeasurementTable().InsertSql()));
  ASSIGN_OR_RETURN(Statement other_time, database.Prepare(OtherTimesTable().InsertSql()));
  return MeasurementWriter(std::move(conditions), std::move(measurement), std::move(other_time));
}

absl::Status MeasurementWriter::Write(int64_t tuning_id, const Tuning& tuning) {
  if (tuning.stop_reason != StopReason::kNone) {
    RETURN_IF_ERROR(WriteConditions(tuning_id, tuning, conditions_));
  }
  int64_t position = 0;
  for (const Candidate& candidate : tuning.candidates) {
    if (HasMeasurement(candidate)) {
      RETURN_IF_ERROR(WriteMeasurement(tuning_id, position, candidate, measurement_));
      for (const TimeSummary& time : candidate.other_times) {
        RETURN_IF_ERROR(WriteOtherTime(tuning_id, position, time, other_time_));
      }
    }
    ++position;
  }
  return absl::OkStatus();
}

absl::StatusOr<MeasurementReader> MeasurementReader::Create(const Database& database) {
  ASSIGN_OR_RETURN(Statement conditions, PrepareSelect(database, ConditionsTable()));
  ASSIGN_OR_RETURN(Statement measurements, PrepareSelect(database, MeasurementTable()));
  ASSIGN_OR_RETURN(Statement other_times, PrepareSelect(database, OtherTimesTable()));
  return MeasurementReader(std::move(conditions), std::move(measurements), std::move(other_times));
}

absl::Status MeasurementReader::Read(int64_t tuning_id, Tuning* tuning) {
  for (Candidate& candidate : tuning->candidates) {
    candidate.low_us = candidate.q1_us;
    candidate.high_us = candidate.q3_us;
  }
  RETURN_IF_ERROR(ReadConditions(tuning_id, tuning));
  RETURN_IF_ERROR(ReadMeasurements(tuning_id, tuning));
  return ReadOtherTimes(tuning_id, tuning);
}

void MeasurementReader::Reset() {
  conditions_.Reset();
  measurements_.Reset();
  other_times_.Reset();
}

absl::Status MeasurementReader::ReadConditions(int64_t tuning_id, Tuning* tuning) {
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

absl::Status MeasurementReader::ReadMeasurements(int64_t tuning_id, Tuning* tuning) {
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

absl::Status MeasurementReader::ReadOtherTimes(int64_t tuning_id, Tuning* tuning) {
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

}  // namespace convtune
