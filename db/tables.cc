#include "db/tables.h"

#include <bit>
#include <utility>

#include "absl/time/time.h"
#include "db/measurement_tables.h"
#include "db/outbox_tables.h"
#include "db/release_tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

absl::Status Damaged(const Table& table, const std::string& row, std::string_view what) {
  return absl::DataLossError(Concat(table.name, " row (", row, "): ", what));
}

constexpr char kBadChecksum[] = "the checksum does not match";

absl::StatusOr<CandidateId> ReadCandidateId(const Table& table, const std::string& row,
                                            const std::string& text) {
  absl::StatusOr<CandidateId> id = ParseCandidateId(text);
  return id.ok() ? std::move(id) : Damaged(table, row, std::string(id.status().message()));
}

std::string EncodeSamples(const std::vector<float>& samples_us) {
  std::string blob(samples_us.size() * 4, '\0');
  char* out = blob.data();
  for (const float sample : samples_us) {
    const auto bits = std::bit_cast<uint32_t>(sample);
    for (int shift = 0; shift < 32; shift += 8) *out++ = static_cast<char>(bits >> shift);
  }
  return blob;
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

std::string EncodeDigest(const TuningDigest& digest) {
  std::string blob;
  for (const uint64_t half : {digest.high, digest.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      blob.push_back(static_cast<char>(half >> shift));
    }
  }
  return blob;
}

}  // namespace

const Table& EnvironmentTable() {
  static const Table table{
      "environments",
      {"environment_id", "text", "name", "profile", "gpu_model", "cc_major", "cc_minor", "sm_count",
       "mig_profile", "cudnn_major", "cudnn_minor", "cudnn_patch", "library"}};
  return table;
}

const Table& TuningTable() {
  static const Table table{
      "tunings",
      {"tuning_id", "digest", "environment_id", "problem_text", "evidence", "origin",
       "tune_time_us", "elapsed_us", "memory_budget_bytes", "incomplete_reason", "driver_version",
       "cuda_version", "gpu_uuid", "node", "memory_bytes", "candidate_count"}};
  return table;
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

const Table& PinTable() {
  static const Table table{"pins",
                           {"environment_id", "problem_text", "candidate", "reason",
                            "create_time_us", "expire_time_us"}};
  return table;
}

const Table& QuarantineTable() {
  static const Table table{
      "quarantine", {"environment_id", "problem_text", "candidate", "reason", "create_time_us"}};
  return table;
}

std::vector<const Table*> ChecksummedTables() {
  return {&EnvironmentTable(), &TuningTable(),     &CandidateTable(),   &SampleTable(),
          &PinTable(),         &QuarantineTable(), &ReleaseTable(),     &ChoiceTable(),
          &WantedTable(),      &ConditionsTable(), &MeasurementTable(), &OtherTimesTable(),
          &OutboxTable()};
}

absl::StatusOr<EnvironmentRow> ReadEnvironment(const Statement& statement, int first) {
  RowReader reader(EnvironmentTable(), statement, first);
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

absl::StatusOr<TuningRow> ReadTuning(const Statement& statement, int first) {
  RowReader reader(TuningTable(), statement, first);
  TuningRow row;
  Tuning& tuning = row.tuning;
  row.id = reader.Int();
  reader.Skip();
  row.environment_id = reader.Int();
  tuning.key.problem_text = reader.Text();
  tuning.evidence = static_cast<Evidence>(reader.Int());
  tuning.origin = static_cast<Origin>(reader.Int());
  tuning.tune_time = absl::FromUnixMicros(reader.Int());
  tuning.elapsed = absl::Microseconds(reader.Int());
  tuning.memory_budget_bytes = reader.Int();
  tuning.incomplete_reason = reader.Text();
  tuning.provenance.driver_version = reader.Text();
  tuning.provenance.cuda_version = reader.Text();
  tuning.provenance.gpu_uuid = reader.Text();
  tuning.provenance.node = reader.Text();
  tuning.provenance.memory_bytes = reader.Int();
  row.candidate_count = reader.Int();
  const std::string name = Concat("tuning ", row.id, ", ", tuning.key.problem_text);
  if (!reader.ChecksumMatches()) {
    return Damaged(TuningTable(), name, kBadChecksum);
  }
  if (!ParseEvidence(Name(tuning.evidence)).has_value() || tuning.origin < Origin::kLocal ||
      tuning.origin > Origin::kFleet) {
    return Damaged(TuningTable(), name, "unknown evidence or origin");
  }
  return row;
}

absl::StatusOr<CandidateRow> ReadCandidate(const Statement& statement, int first) {
  RowReader reader(CandidateTable(), statement, first);
  CandidateRow row;
  row.tuning_id = reader.Int();
  row.position = reader.Int();
  const std::string id = reader.Text();
  const auto damaged = [&row, &id](std::string_view what) {
    return Damaged(CandidateTable(),
                   Concat("tuning ", row.tuning_id, ", position ", row.position, ", ", id), what);
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

absl::StatusOr<SampleRow> ReadSamples(const Statement& statement, int first) {
  RowReader reader(SampleTable(), statement, first);
  const int64_t tuning_id = reader.Int();
  SampleRow row;
  row.position = reader.Int();
  if (!reader.ChecksumMatches()) {
    return Damaged(SampleTable(), Concat("tuning ", tuning_id, ", position ", row.position),
                   kBadChecksum);
  }
  row.samples_us = DecodeSamples(reader.Blob());
  return row;
}

absl::StatusOr<PinRow> ReadPin(const Statement& statement, int first) {
  RowReader reader(PinTable(), statement, first);
  PinRow row;
  row.environment_id = reader.Int();
  row.pin.key.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) {
    return Damaged(PinTable(), row.pin.key.problem_text, kBadChecksum);
  }
  ASSIGN_OR_RETURN(row.pin.candidate,
                   ReadCandidateId(PinTable(), row.pin.key.problem_text, reader.Text()));
  row.pin.reason = reader.Text();
  row.pin.create_time = absl::FromUnixMicros(reader.Int());
  if (!reader.NextIsNull()) {
    row.pin.expire_time = absl::FromUnixMicros(reader.Int());
  }
  return row;
}

absl::StatusOr<QuarantineRow> ReadQuarantine(const Statement& statement, int first) {
  RowReader reader(QuarantineTable(), statement, first);
  QuarantineRow row;
  row.environment_id = reader.Int();
  row.entry.key.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) {
    return Damaged(QuarantineTable(), row.entry.key.problem_text, kBadChecksum);
  }
  ASSIGN_OR_RETURN(row.entry.candidate,
                   ReadCandidateId(QuarantineTable(), row.entry.key.problem_text, reader.Text()));
  row.entry.reason = reader.Text();
  row.entry.create_time = absl::FromUnixMicros(reader.Int());
  return row;
}

absl::Status WriteEnvironment(const EnvironmentRow& row, Statement& statement) {
  const Environment& environment = row.environment;
  return RowWriter(EnvironmentTable(), statement)
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
                         Statement& statement) {
  return RowWriter(TuningTable(), statement)
      .Int(id)
      .Blob(EncodeDigest(tuning.key.Digest()))
      .Int(environment_id)
      .Text(tuning.key.problem_text)
      .Int(static_cast<int>(tuning.evidence))
      .Int(static_cast<int>(tuning.origin))
      .Int(absl::ToUnixMicros(tuning.tune_time))
      .Int(absl::ToInt64Microseconds(tuning.elapsed))
      .Int(tuning.memory_budget_bytes)
      .Text(tuning.incomplete_reason)
      .Text(tuning.provenance.driver_version)
      .Text(tuning.provenance.cuda_version)
      .Text(tuning.provenance.gpu_uuid)
      .Text(tuning.provenance.node)
      .Int(tuning.provenance.memory_bytes)
      .Int(static_cast<int64_t>(tuning.candidates.size()))
      .Insert();
}

absl::Status WriteCandidate(int64_t tuning_id, int64_t position, const Candidate& candidate,
                            Statement& statement) {
  return RowWriter(CandidateTable(), statement)
      .Int(tuning_id)
      .Int(position)
      .Text(ToText(candidate.id))
      .Int(candidate.numerical_notes)
      .Int(candidate.behavior_notes)
      .Int(candidate.deterministic ? 1 : 0)
      .Int(candidate.workspace_bytes)
      .Int(candidate.heuristic_rank)
      .Int(static_cast<int>(candidate.status))
      .Text(candidate.error_message)
      .Real(candidate.median_us)
      .Real(candidate.q1_us)
      .Real(candidate.q3_us)
      .Int(candidate.sample_count)
      .Real(candidate.find_us)
      .Insert();
}

absl::Status WriteSamples(int64_t tuning_id, int64_t position, const std::vector<float>& samples_us,
                          Statement& statement) {
  return RowWriter(SampleTable(), statement)
      .Int(tuning_id)
      .Int(position)
      .Blob(EncodeSamples(samples_us))
      .Insert();
}

absl::Status WritePin(int64_t environment_id, const Pin& pin, Statement& statement) {
  RowWriter writer(PinTable(), statement);
  writer.Int(environment_id)
      .Text(pin.key.problem_text)
      .Text(ToText(pin.candidate))
      .Text(pin.reason)
      .Int(absl::ToUnixMicros(pin.create_time));
  if (pin.expire_time.has_value()) {
    writer.Int(absl::ToUnixMicros(*pin.expire_time));
  } else {
    writer.Null();
  }
  return writer.Insert();
}

absl::Status WriteQuarantine(int64_t environment_id, const QuarantineEntry& entry,
                             Statement& statement) {
  return RowWriter(QuarantineTable(), statement)
      .Int(environment_id)
      .Text(entry.key.problem_text)
      .Text(ToText(entry.candidate))
      .Text(entry.reason)
      .Int(absl::ToUnixMicros(entry.create_time))
      .Insert();
}

}  // namespace convtune
