#include "db/store/rows.h"

#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_arena.h"
#include "proto/convert/record_codec.h"

namespace convtune::db::store {

using sqlite::Damaged;
using sqlite::TableOf;

std::vector<const sqlite::Table*> ChecksummedTables() {
  return {&TableOf<EnvironmentRow>(), &TableOf<TuningRow>(), &TableOf<SamplesRow>(),
          &TableOf<PinRow>(),         &TableOf<BanRow>(),    &TableOf<QuarantineRow>(),
          &TableOf<ReleaseRow>(),     &TableOf<ChoiceRow>(), &TableOf<WantedRow>(),
          &TableOf<OutboxRow>()};
}

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
  const absl::StatusOr<int64_t> value =
      database.QueryInt("SELECT value FROM meta WHERE key = ?", name);
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

}  // namespace convtune::db::store
