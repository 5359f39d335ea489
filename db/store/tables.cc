#include "db/store/tables.h"

#include <utility>

#include "absl/time/time.h"
#include "db/store/outbox_tables.h"
#include "db/store/packed_candidates.h"
#include "db/store/release_tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {
namespace {

absl::StatusOr<CandidateId> ReadCandidateId(const sqlite::Table& table, const std::string& row,
                                            const std::string& text) {
  absl::StatusOr<CandidateId> id = ParseCandidateId(text);
  return id.ok() ? std::move(id) : Damaged(table, row, std::string(id.status().message()));
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
      {"tuning_id", "digest", "environment_id", "problem_text", "evidence", "origin",
       "tune_time_us", "elapsed_us", "memory_budget_bytes", "incomplete_reason", "driver_version",
       "cuda_version", "gpu_uuid", "node", "memory_bytes", "cublaslt_build", "nvrtc_build",
       "candidate_count", "incomplete"}};
  return table;
}

const sqlite::Table& CandidatesTable() {
  static const sqlite::Table table{"tuning_candidates", {"tuning_id", "candidates"}};
  return table;
}

const sqlite::Table& SamplesTable() {
  static const sqlite::Table table{"tuning_samples", {"tuning_id", "last_position", "samples"}};
  return table;
}

const sqlite::Table& PinTable() {
  static const sqlite::Table table{"pins",
                                   {"environment_id", "problem_text", "candidate", "reason",
                                    "create_time_us", "expire_time_us"}};
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
  return {&EnvironmentTable(), &TuningTable(),     &CandidatesTable(), &SamplesTable(),
          &PinTable(),         &QuarantineTable(), &ReleaseTable(),    &ChoiceTable(),
          &WantedTable(),      &OutboxTable()};
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

absl::StatusOr<TuningRow> ReadTuning(const sqlite::Statement& statement, int first) {
  sqlite::RowReader reader(TuningTable(), statement, first);
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
  tuning.provenance.cublaslt_build = reader.Text();
  tuning.provenance.nvrtc_build = reader.Text();
  row.candidate_count = reader.Int();
  tuning.incomplete = static_cast<uint32_t>(reader.Int());
  const auto damaged = [&row](std::string_view what) {
    return Damaged(TuningTable(), Concat("tuning ", row.id, ", ", row.tuning.key.problem_text),
                   what);
  };
  if (!reader.ChecksumMatches()) return damaged(kBadChecksum);
  if (!ParseEvidence(Name(tuning.evidence)).has_value() || tuning.origin < Origin::kLocal ||
      tuning.origin > Origin::kFleet) {
    return damaged("unknown evidence or origin");
  }
  return row;
}

absl::Status ReadCandidates(const sqlite::Statement& statement, int first, TuningRow* row) {
  sqlite::RowReader reader(CandidatesTable(), statement, first);
  const auto damaged = [row](std::string_view what) {
    return Damaged(CandidatesTable(),
                   Concat("tuning ", row->id, ", ", row->tuning.key.problem_text), what);
  };
  if (reader.NextIsNull()) return damaged("is missing");
  if (!reader.ChecksumMatches()) return damaged(kBadChecksum);
  reader.Skip();
  if (!UnpackCandidates(reader.Blob(), &row->tuning)) {
    return damaged("its candidates mean nothing to this program");
  }
  if (static_cast<int64_t>(row->tuning.candidates.size()) != row->candidate_count) {
    return damaged("a candidate is missing");
  }
  return absl::OkStatus();
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
  if (!UnpackSamples(reader.Blob(), candidates)) {
    return damaged("its samples mean nothing to this program");
  }
  return absl::OkStatus();
}

absl::StatusOr<PinRow> ReadPin(const sqlite::Statement& statement, int first) {
  sqlite::RowReader reader(PinTable(), statement, first);
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

absl::StatusOr<QuarantineRow> ReadQuarantine(const sqlite::Statement& statement, int first) {
  sqlite::RowReader reader(QuarantineTable(), statement, first);
  QuarantineRow row;
  row.environment_id = reader.Int();
  row.entry.key.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) {
    return Damaged(QuarantineTable(), row.entry.key.problem_text, kBadChecksum);
  }
  ASSIGN_OR_RETURN(row.entry.candidate,
                   ReadCandidateId(QuarantineTable(), row.entry.key.problem_text, reader.Text()));
  row.entry.reason = static_cast<QuarantineReason>(reader.Int());
  row.entry.message = reader.Text();
  row.entry.hang_budget = absl::Microseconds(reader.Int());
  row.entry.checker_version = static_cast<int>(reader.Int());
  if (row.entry.reason < QuarantineReason::kCrashed ||
      row.entry.reason > QuarantineReason::kOutOfBounds) {
    return Damaged(QuarantineTable(), row.entry.key.problem_text, "unknown reason");
  }
  row.entry.create_time = absl::FromUnixMicros(reader.Int());
  return row;
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
  return sqlite::RowWriter(TuningTable(), statement)
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
      .Text(tuning.provenance.cublaslt_build)
      .Text(tuning.provenance.nvrtc_build)
      .Int(static_cast<int64_t>(tuning.candidates.size()))
      .Int(tuning.incomplete)
      .Insert();
}

absl::Status WriteCandidates(int64_t tuning_id, const Tuning& tuning,
                             sqlite::Statement& statement) {
  return sqlite::RowWriter(CandidatesTable(), statement)
      .Int(tuning_id)
      .Blob(PackCandidates(tuning))
      .Insert();
}

absl::Status WriteSamples(int64_t tuning_id, const std::vector<Candidate>& candidates,
                          sqlite::Statement& statement) {
  return sqlite::RowWriter(SamplesTable(), statement)
      .Int(tuning_id)
      .Int(LastPositionWithSamples(candidates))
      .Blob(PackSamples(candidates))
      .Insert();
}

absl::Status WritePin(int64_t environment_id, const Pin& pin, sqlite::Statement& statement) {
  sqlite::RowWriter writer(PinTable(), statement);
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
