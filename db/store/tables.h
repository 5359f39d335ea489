// The tables and how their rows become values of the model. The readers give
// DATA_LOSS, naming the row, where a checksum does not match or a value means
// nothing to this program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/row_codec.h"
#include "db/sqlite/statement.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

const sqlite::Table& EnvironmentTable();
const sqlite::Table& TuningTable();
const sqlite::Table& SamplesTable();
const sqlite::Table& PinTable();
const sqlite::Table& BanTable();
const sqlite::Table& QuarantineTable();
// Every table whose rows have checksums.
std::vector<const sqlite::Table*> ChecksummedTables();

// The end of the error message of a row whose content is not the one that was written.
inline constexpr char kBadChecksum[] = "the checksum does not match";
// The end of the error message of a sound row that was found by another row's key. The
// damage is then in an index.
inline constexpr char kWrongRow[] = "an index leads to it for another key";
// Returns the error of a damaged `row` of `table`; `what` ends its message.
absl::Status Damaged(const sqlite::Table& table, const std::string& row, std::string_view what);

struct EnvironmentRow {
  int64_t id = 0;
  std::string text;
  Environment environment;
};

struct TuningRow {
  int64_t id = 0;
  int64_t environment_id = 0;
  std::string problem_text;
  std::string record;  // a serialized v1::Tuning without samples
};

// From the row that `statement` stands on; its columns from `first`, else from 0, are
// the table's SelectList().
absl::StatusOr<EnvironmentRow> ReadEnvironment(const sqlite::Statement& statement, int first = 0);
absl::StatusOr<TuningRow> ReadTuning(const sqlite::Statement& statement);
// Without key.environment_text and samples. On any thread.
absl::StatusOr<Tuning> DecodeTuning(const TuningRow& row);
// Into the candidates of their tuning.
absl::Status ReadSamples(const sqlite::Statement& statement, int first,
                         std::vector<Candidate>* candidates);
// Without key.environment_text.
absl::StatusOr<Pin> ReadPin(const sqlite::Statement& statement);
absl::StatusOr<QuarantineEntry> ReadQuarantine(const sqlite::Statement& statement);
absl::StatusOr<Ban> ReadBan(const sqlite::Statement& statement);

// Into a statement of the table's InsertSql() or UpsertSql().
absl::Status WriteEnvironment(const EnvironmentRow& row, sqlite::Statement& statement);
absl::Status WriteTuning(int64_t id, int64_t environment_id, const Tuning& tuning,
                         sqlite::Statement& statement);
// Up to the last candidate that has samples.
size_t CandidatesWithSamples(const std::vector<Candidate>& candidates);
// REQUIRES: a candidate has samples.
absl::Status WriteSamples(int64_t tuning_id, const std::vector<Candidate>& candidates,
                          sqlite::Statement& statement);
absl::Status WritePin(int64_t environment_id, const Pin& pin, sqlite::Statement& statement);
absl::Status WriteBan(const Ban& ban, sqlite::Statement& statement);
absl::Status WriteQuarantine(int64_t environment_id, const QuarantineEntry& entry,
                             sqlite::Statement& statement);

}  // namespace convtune::db::store
