// The tables of measurements (see migrations/0003) and how their rows become
// values of the model. Errors are those of tables.h.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "db/row_codec.h"
#include "proto/model/tuning.h"

namespace convtune {

const Table& ConditionsTable();
const Table& MeasurementTable();
const Table& OtherTimesTable();

// Writes what the three tables hold of tunings whose rows and candidates are
// there, inside the caller's transaction. Prepared once for many. Not
// thread-safe; must not outlive the database.
class MeasurementWriter {
 public:
  static absl::StatusOr<MeasurementWriter> Create(const Database& database);
  absl::Status Write(int64_t tuning_id, const Tuning& tuning);

 private:
  MeasurementWriter(Statement conditions, Statement measurement, Statement other_time)
      : conditions_(std::move(conditions)),
        measurement_(std::move(measurement)),
        other_time_(std::move(other_time)) {}

  Statement conditions_;
  Statement measurement_;
  Statement other_time_;
};

// Reads what the three tables hold into tunings, one after the other. Prepared
// once for many. Not thread-safe; must not outlive the database.
class MeasurementReader {
 public:
  static absl::StatusOr<MeasurementReader> Create(const Database& database);

  // Into `tuning`, whose candidates are there, in the order of their
  // positions. What has no row keeps the quartiles as its interval.
  absl::Status Read(int64_t tuning_id, Tuning* tuning);
  // Lets go of the rows read last.
  void Reset();

 private:
  MeasurementReader(Statement conditions, Statement measurements, Statement other_times)
      : conditions_(std::move(conditions)),
        measurements_(std::move(measurements)),
        other_times_(std::move(other_times)) {}

  absl::Status ReadConditions(int64_t tuning_id, Tuning* tuning);
  absl::Status ReadMeasurements(int64_t tuning_id, Tuning* tuning);
  absl::Status ReadOtherTimes(int64_t tuning_id, Tuning* tuning);

  Statement conditions_;
  Statement measurements_;
  Statement other_times_;
};

}  // namespace convtune
