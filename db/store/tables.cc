#include "db/store/tables.h"

#include <utility>

#include "absl/time/time.h"
#include "db/store/outbox_tables.h"
#include "db/store/release_tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_arena.h"
#include "proto/convert/record_codec.h"

namespace convtune::db::store {
namespace {

absl::StatusOr<CandidateId> ReadCandidateId(const sqlite::Table& table, const std::string& row,
                                            const std::string& text) {
  absl::StatusOr<CandidateId> id = ParseCandidateId(text);
  return id.ok() ? std::move(id) : Damaged(table, row, std::string(id.status().message()));
}

absl::Status DamagedTuning(const TuningRow& row, std::string_view what) {
  return Damaged(TuningTable(), Concat("tuning ", row.id, ", ", row.problem_text), what);
}

}  // namespace

absl::Status Damaged(const sqlite::Table& table, const std::string& row, std::string_view what) {
  return absl::DataLossError(Concat(table.name, " row (", row, "): ", what));
}

const sqlite::Table& EnvironmentTable() {
  static const sqlite::Table table{
      "environments",
      {"environment_id", "text", "name", "profile", "gpu_model", "cc_major", "cc_minor", "sm_count",
       "mig_profile", "cudnn_major", "cudnn_minor", "cudnn_patch", "library"}};
  return table;
}

const sqlite::Table& TuningTable() {
  static const sqlite::Table table{
      "tunings",
      {"tuning_id", "environment_id", "problem_text", "origin", "tune_time_us", "record"}};
  return table;
}

const sqlite::Table& SamplesTable() {
  static const sqlite::Table table{"tuning_samples", {"tuning_id", "candidate_count", "record"}};
  return table;
}

const sqlite::Table& PinTable() {
  static const sqlite::Table table{"pins",
                                   {"environment_id", "problem_text", "candidate", "reason",
                                    "fleet_pin", "create_time_us", "expire_time_us"}};
  return table;
}

const sqlite::Table& BanTable() {
  static const sqlite::Table table{
      "bans",
      {"ban_number", "fleet_ban", "candidate", "cudnn", "gpu", "operation", "data_type", "layout",
       "author", "reason", "create_time_us", "expire_time_us"}};
  return table;
}

const sqlite::Table& QuarantineTable() {
  static const sqlite::Table table{
      "quarantine",
      {"environment_id", "problem_text", "candidate", "reason", "message", "hang_budget_us",
       "checker_version", "create_time_us"}};
  return table;
}

std::vector<const sqlite::Table*> ChecksummedTables() {
  return {&EnvironmentTable(), &TuningTable(),  &SamplesTable(), &PinTable(),    &BanTable(),
          &QuarantineTable(),  &ReleaseTable(), &ChoiceTable(),  &WantedTable(), &OutboxTable()};
}

absl::StatusOr<EnvironmentRow> ReadEnvironment(const sqlite::Statement& statement, int first) {
  sqlite::RowReader reader(EnvironmentTable(), statement, first);
  EnvironmentRow row;
  row.id = reader.Int();
  row.text = reader.Text();
  reader.Skip();
  Environment& environment = row.environment;
  environment.profile = reader.Int() != 0;
  environment.gpu_model = reader.Text();
  environment.cc_major = static_cast<int>(reader.Int());
  environment.cc_minor = static_cast<int>(reader.Int());
  environment.sm_count = static_cast<int>(reader.Int());
  environment.mig_profile = reader.Text();
  environment.cudnn.major = static_cast<int>(reader.Int());
  environment.cudnn.minor = static_cast<int>(reader.Int());
  environment.cudnn.patch = static_cast<int>(reader.Int());
  environment.library = static_cast<LibraryConfiguration>(reader.Int());
  if (!reader.ChecksumMatches()) {
    return Damaged(EnvironmentTable(), row.text, kBadChecksum);
  }
  if (!ParseLibraryConfiguration(Name(environment.library)).has_value()) {
    return Damaged(EnvironmentTable(), row.text, "unknown library configuration");
  }
  return row;
}

absl::StatusOr<TuningRow> ReadTuning(const sqlite::Statement& statement) {
  sqlite::RowReader reader(TuningTable(), statement);
  TuningRow row;
  row.id = reader.Int();
  row.environment_id = reader.Int();
  row.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) return DamagedTuning(row, kBadChecksum);
  reader.Skip();
  reader.Skip();
  row.record = reader.Blob();
  return row;
}

absl::StatusOr<Tuning> DecodeTuning(const TuningRow& row) {
  Tuning tuning;
  const v1::Tuning* const record = RecordArena::OfThread().Parse(row.record);
  if (record == nullptr) return DamagedTuning(row, "its record is no message");
  if (const absl::Status read = Read(*record, &tuning); !read.ok()) {
    return DamagedTuning(row, Concat("its record means nothing to this program: ", read.message()));
  }
  tuning.key.problem_text = row.problem_text;
  return tuning;
}

absl::Status ReadSamples(const sqlite::Statement& statement, int first,
                         std::vector<Candidate>* candidates) {
  sqlite::RowReader reader(SamplesTable(), statement, first);
  const auto damaged = [id = statement.Int(first)](std::string_view what) {
    return Damaged(SamplesTable(), Concat("tuning ", id), what);
  };
  if (!reader.ChecksumMatches()) return damaged(kBadChecksum);
  reader.Skip();
  reader.Skip();
  const v1::Tuning* const record = RecordArena::OfThread().Parse(reader.Blob());
  if (record == nullptr || record->candidates_size() > static_cast<int>(candidates->size())) {
    return damaged("its samples mean nothing to this program");
  }
  for (int i = 0; i < record->candidates_size(); ++i) {
    const auto& samples = record->candidates(i).samples_ns();
    (*candidates)[static_cast<size_t>(i)].samples_ns.assign(samples.begin(), samples.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<Pin> ReadPin(const sqlite::Statement& statement) {
  sqlite::RowReader reader(PinTable(), statement);
  reader.Skip();
  Pin pin;
  pin.key.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) {
    return Damaged(PinTable(), pin.key.problem_text, kBadChecksum);
  }
  ASSIGN_OR_RETURN(pin.candidate, ReadCandidateId(PinTable(), pin.key.problem_text, reader.Text()));
  pin.reason = reader.Text();
  pin.fleet_pin = reader.Int();
  pin.create_time = absl::FromUnixMicros(reader.Int());
  pin.expire_time = reader.MaybeTime();
  return pin;
}

absl::StatusOr<Ban> ReadBan(const sqlite::Statement& statement) {
  sqlite::RowReader reader(BanTable(), statement);
  Ban ban;
  ban.number = reader.Int();
  const auto damaged = [&ban](std::string_view what) {
    return Damaged(BanTable(), ban.Name(), what);
  };
  if (!reader.ChecksumMatches()) return damaged(kBadChecksum);
  ban.fleet_ban = reader.Int();
  absl::StatusOr<CandidatePattern> candidate = CandidatePattern::Parse(reader.Text());
  if (!candidate.ok()) return damaged(std::string(candidate.status().message()));
  ban.candidate = *std::move(candidate);
  const absl::StatusOr<CudnnRange> cudnn = CudnnRange::Parse(reader.Text());
  if (!cudnn.ok()) return damaged(std::string(cudnn.status().message()));
  ban.cudnn = *cudnn;
  ban.gpu = reader.Text();
  if (const int64_t number = reader.Int()) ban.operation = static_cast<Operation>(number);
  if (const int64_t number = reader.Int()) ban.data_type = static_cast<DataType>(number);
  if (const int64_t number = reader.Int()) ban.layout = static_cast<TensorLayout>(number);
  if ((ban.operation && !ParseOperation(Name(*ban.operation))) ||
      (ban.data_type && !ParseDataType(Name(*ban.data_type))) ||
      (ban.layout && *ban.layout > TensorLayout::kStrided)) {
    return damaged("a condition on the problem means nothing to this program");
  }
  ban.author = reader.Text();
  ban.reason = reader.Text();
  ban.create_time = absl::FromUnixMicros(reader.Int());
  ban.expire_time = reader.MaybeTime();
  return ban;
}

absl::StatusOr<QuarantineEntry> ReadQuarantine(const sqlite::Statement& statement) {
  sqlite::RowReader reader(QuarantineTable(), statement);
  reader.Skip();
  QuarantineEntry entry;
  entry.key.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) {
    return Damaged(QuarantineTable(), entry.key.problem_text, kBadChecksum);
  }
  ASSIGN_OR_RETURN(entry.candidate,
                   ReadCandidateId(QuarantineTable(), entry.key.problem_text, reader.Text()));
  entry.reason = static_cast<QuarantineReason>(reader.Int());
  entry.message = reader.Text();
  entry.hang_budget = absl::Microseconds(reader.Int());
  entry.checker_version = static_cast<int>(reader.Int());
  if (entry.reason < QuarantineReason::kCrashed || entry.reason > QuarantineReason::kOutOfBounds) {
    return Damaged(QuarantineTable(), entry.key.problem_text, "unknown reason");
  }
  entry.create_time = absl::FromUnixMicros(reader.Int());
  return entry;
}

absl::Status WriteEnvironment(const EnvironmentRow& row, sqlite::Statement& statement) {
  const Environment& environment = row.environment;
  return sqlite::RowWriter(EnvironmentTable(), statement)
      .Int(row.id)
      .Text(row.text)
      .Text(environment.Name())
      .Int(environment.profile ? 1 : 0)
      .Text(environment.gpu_model)
      .Int(environment.cc_major)
      .Int(environment.cc_minor)
      .Int(environment.sm_count)
      .Text(environment.mig_profile)
      .Int(environment.cudnn.major)
      .Int(environment.cudnn.minor)
      .Int(environment.cudnn.patch)
      .Int(static_cast<int>(environment.library))
      .Insert();
}

absl::Status WriteTuning(int64_t id, int64_t environment_id, const Tuning& tuning,
                         sqlite::Statement& statement) {
  v1::Tuning* const record = RecordArena::OfThread().New();
  Fill(tuning, /*with_samples=*/false, record);
  return sqlite::RowWriter(TuningTable(), statement)
      .Int(id)
      .Int(environment_id)
      .Text(tuning.key.problem_text)
      .Int(static_cast<int>(tuning.origin))
      .Int(absl::ToUnixMicros(tuning.tune_time))
      .Blob(record->SerializeAsString())
      .Insert();
}

size_t CandidatesWithSamples(const std::vector<Candidate>& candidates) {
  size_t count = candidates.size();
  while (count > 0 && candidates[count - 1].samples_ns.empty()) --count;
  return count;
}

absl::Status WriteSamples(int64_t tuning_id, const std::vector<Candidate>& candidates,
                          sqlite::Statement& statement) {
  v1::Tuning* const record = RecordArena::OfThread().New();
  const size_t count = CandidatesWithSamples(candidates);
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& samples = candidates[i].samples_ns;
    record->add_candidates()->mutable_samples_ns()->Add(samples.begin(), samples.end());
  }
  return sqlite::RowWriter(SamplesTable(), statement)
      .Int(tuning_id)
      .Int(static_cast<int64_t>(count))
      .Blob(record->SerializeAsString())
      .Insert();
}

absl::Status WritePin(int64_t environment_id, const Pin& pin, sqlite::Statement& statement) {
  return sqlite::RowWriter(PinTable(), statement)
      .Int(environment_id)
      .Text(pin.key.problem_text)
      .Text(ToText(pin.candidate))
      .Text(pin.reason)
      .Int(pin.fleet_pin)
      .Int(absl::ToUnixMicros(pin.create_time))
      .MaybeTime(pin.expire_time)
      .Insert();
}

absl::Status WriteBan(const Ban& ban, sqlite::Statement& statement) {
  const auto number = [](const auto& value) { return value ? static_cast<int>(*value) : 0; };
  return sqlite::RowWriter(BanTable(), statement)
      .Int(ban.number)
      .Int(ban.fleet_ban)
      .Text(ban.candidate.ToText())
      .Text(ban.cudnn.ToText())
      .Text(ban.gpu)
      .Int(number(ban.operation))
      .Int(number(ban.data_type))
      .Int(number(ban.layout))
      .Text(ban.author)
      .Text(ban.reason)
      .Int(absl::ToUnixMicros(ban.create_time))
      .MaybeTime(ban.expire_time)
      .Insert();
}

absl::Status WriteQuarantine(int64_t environment_id, const QuarantineEntry& entry,
                             sqlite::Statement& statement) {
  return sqlite::RowWriter(QuarantineTable(), statement)
      .Int(environment_id)
      .Text(entry.key.problem_text)
      .Text(ToText(entry.candidate))
      .Int(static_cast<int>(entry.reason))
      .Text(entry.message)
      .Int(absl::ToInt64Microseconds(entry.hang_budget))
      .Int(entry.checker_version)
      .Int(absl::ToUnixMicros(entry.create_time))
      .Insert();
}

}  // namespace convtune::db::store
