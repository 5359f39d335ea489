#include "db/store/tuning_writer.h"

#include <cmath>

#include "db/store/rows.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

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

}  // namespace

absl::StatusOr<TuningWriter> TuningWriter::Create(sqlite::Database* database) {
  ASSIGN_OR_RETURN(
      sqlite::Statement erase,
      database->Prepare("DELETE FROM tunings WHERE environment_id = ? AND problem_text = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement tuning,
                   database->Prepare(sqlite::TableOf<TuningRow>().insert));
  ASSIGN_OR_RETURN(sqlite::Statement samples,
                   database->Prepare(sqlite::TableOf<SamplesRow>().insert));
  // Rows number themselves before they are written, since the number is part of the checksum.
  ASSIGN_OR_RETURN(const int64_t next_id,
                   database->QueryInt("SELECT COALESCE(MAX(tuning_id), 0) + 1 FROM tunings"));
  return TuningWriter(database, std::move(erase), std::move(tuning), std::move(samples), next_id);
}

absl::StatusOr<int64_t> TuningWriter::Store(const Tuning& tuning, const Environment& environment) {
  RETURN_IF_ERROR(CheckNumbers(tuning));
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   environments_.Of(tuning.key.environment_text, environment));
  RETURN_IF_ERROR(erase_.Bind(environment_id, tuning.key.problem_text).Run());
  const int64_t id = next_id_++;
  RETURN_IF_ERROR(sqlite::WriteRow(ToRow(tuning, id, environment_id), &tuning_));
  const SamplesRow samples = ToSamplesRow(id, tuning.candidates);
  if (samples.candidate_count > 0) RETURN_IF_ERROR(sqlite::WriteRow(samples, &samples_));
  return environment_id;
}

}  // namespace convtune::db::store
