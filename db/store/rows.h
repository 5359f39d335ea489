// The rows of the daemon's tables (see sqlite/row_table.h), and functions that read and write them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/sqlite/row_table.h"
#include "db/tuning_store.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/release/release.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

// The end of the error message of a sound row that was found by another row's key. The
// damage is then in an index.
inline constexpr char kWrongRow[] = "an index leads to it for another key";
inline constexpr char kLostEnvironment[] = "its environment is damaged";

struct EnvironmentRow {
  static constexpr std::string_view kTable = "environments";
  static constexpr std::string_view kKey = "environment_id";
  static void Visit(auto& row, auto& columns) {
    columns("environment_id", row.id);
    columns("text", row.text);
    columns("name", row.name);
    columns("profile", row.environment.profile);
    columns("gpu_model", row.environment.gpu_model);
    columns("cc_major", row.environment.cc_major);
    columns("cc_minor", row.environment.cc_minor);
    columns("sm_count", row.environment.sm_count);
    columns("mig_profile", row.environment.mig_profile);
    columns("cudnn_major", row.environment.cudnn.major);
    columns("cudnn_minor", row.environment.cudnn.minor);
    columns("cudnn_patch", row.environment.cudnn.patch);
    columns("library", row.environment.library, LibraryConfiguration::kUnknown,
            LibraryConfiguration::kGraphJitOnly);
  }
  std::string Label() const { return text; }

  int64_t id = 0;
  std::string text;
  std::string name;  // environment.Name()
  Environment environment;
};

struct TuningRow {
  static constexpr std::string_view kTable = "tunings";
  static constexpr std::string_view kKey = "tuning_id";
  static void Visit(auto& row, auto& columns) {
    columns("tuning_id", row.id);
    columns("environment_id", row.environment_id);
    columns("problem_text", row.problem_text);
    columns("origin", row.origin);
    columns("tune_time_us", row.tune_time);
    columns.Blob("record", row.record);
  }
  std::string Label() const { return Concat("tuning ", id, ", ", problem_text); }

  int64_t id = 0;
  int64_t environment_id = 0;
  std::string problem_text;
  Origin origin = Origin::kLocal;  // this and the next as in the record
  absl::Time tune_time;
  std::string record;  // a serialized v1::Tuning without samples
};

struct SamplesRow {
  static constexpr std::string_view kTable = "tuning_samples";
  static constexpr std::string_view kKey = "tuning_id";
  static void Visit(auto& row, auto& columns) {
    columns("tuning_id", row.tuning_id);
    columns("candidate_count", row.candidate_count);
    columns.Blob("record", row.record);
  }
  std::string Label() const { return Concat("tuning ", tuning_id); }

  int64_t tuning_id = 0;
  size_t candidate_count = 0;  // those in the record, up to the last that has samples
  std::string record;          // a serialized v1::Tuning with samples alone
};

// A row whose key begins with an environment. The value lacks key.environment_text, which ReadKeyed
// sets.
template <typename Value>
struct KeyedRow {
  std::string Label() const { return value.key.problem_text; }

  int64_t environment_id = 0;
  Value value;
};

struct PinRow : KeyedRow<Pin> {
  static constexpr std::string_view kTable = "pins";
  static constexpr std::string_view kKey = "environment_id, problem_text";
  static void Visit(auto& row, auto& columns) {
    columns("environment_id", row.environment_id);
    columns("problem_text", row.value.key.problem_text);
    columns("candidate", row.value.candidate);
    columns("reason", row.value.reason);
    columns("fleet_pin", row.value.fleet_pin);
    columns("create_time_us", row.value.create_time);
    columns("expire_time_us", row.value.expire_time);
  }
};

struct BanRow {
  static constexpr std::string_view kTable = "bans";
  static constexpr std::string_view kKey = "ban_number";
  static void Visit(auto& row, auto& columns) {
    columns("ban_number", row.value.number);
    columns("fleet_ban", row.value.fleet_ban);
    columns("candidate", row.value.candidate);
    columns("cudnn", row.value.cudnn);
    columns("gpu", row.value.gpu);
    columns("operation", row.value.operation, Operation::kFwd, Operation::kBwdFilter);
    columns("data_type", row.value.data_type, DataType::kF64, DataType::kE5M2);
    columns("layout", row.value.layout, TensorLayout::kNchw, TensorLayout::kStrided);
    columns("author", row.value.author);
    columns("reason", row.value.reason);
    columns("create_time_us", row.value.create_time);
    columns("expire_time_us", row.value.expire_time);
  }
  std::string Label() const { return value.Name(); }

  Ban value;
};

struct QuarantineRow : KeyedRow<QuarantineEntry> {
  static constexpr std::string_view kTable = "quarantine";
  static constexpr std::string_view kKey = "environment_id, problem_text, candidate";
  static void Visit(auto& row, auto& columns) {
    columns("environment_id", row.environment_id);
    columns("problem_text", row.value.key.problem_text);
    columns("candidate", row.value.candidate);
    columns("reason", row.value.reason, QuarantineReason::kCrashed, QuarantineReason::kOutOfBounds);
    columns("message", row.value.message);
    columns("hang_budget_us", row.value.hang_budget);
    columns("checker_version", row.value.checker_version);
    columns("create_time_us", row.value.create_time);
  }
};

struct ReleaseRow {
  static constexpr std::string_view kTable = "releases";
  static constexpr std::string_view kKey = "release_number";
  static void Visit(auto& row, auto& columns) {
    columns("release_number", row.value.number);
    columns("state", row.value.state, ReleaseState::kPromoted, ReleaseState::kRolledBack);
    columns("canary_permille", row.value.canary_permille);
    columns("restores", row.value.restores);
    columns("author", row.value.author);
    columns("reason", row.value.reason);
    columns("create_time_us", row.value.create_time);
    columns("end_author", row.value.end_author);
    columns("end_reason", row.value.end_reason);
    columns("end_time_us", row.value.end_time);
  }
  std::string Label() const { return Concat("release ", value.number); }

  Release value;
};

struct ChoiceRow {
  static constexpr std::string_view kTable = "choices";
  static constexpr std::string_view kKey = "environment_id, problem_text, release_number, place";
  static void Visit(auto& row, auto& columns) {
    columns("environment_id", row.environment_id);
    columns("problem_text", row.problem_text);
    columns("release_number", row.release_number);
    columns("place", row.place);
    columns("choice_count", row.choice_count);
    columns("roles", row.choice.roles);
    columns("candidate", row.candidate);
    columns("evidence", row.evidence);
    columns("numerical_notes", row.choice.candidate.numerical_notes);
    columns("behavior_notes", row.choice.candidate.behavior_notes);
    columns("workspace_bytes", row.choice.candidate.workspace_bytes);
    columns("heuristic_rank", row.choice.candidate.heuristic_rank);
    columns("median_us", row.choice.candidate.median_us);
  }
  std::string Label() const {
    return Concat("release ", release_number, ", ", problem_text, ", place ", place);
  }

  int64_t environment_id = 0;
  std::string problem_text;
  int64_t release_number = 0;
  int64_t place = 0;
  int64_t choice_count = 0;              // 0: the problem has none
  Evidence evidence = Evidence::kNone;   // of the portfolio
  std::optional<CandidateId> candidate;  // of the choice; nullopt: a problem without choices
  Choice choice;                         // the other columns; median_us is 0 if it was not timed
};

struct WantedRow : KeyedRow<WantedProblem> {
  static constexpr std::string_view kTable = "wanted";
  static constexpr std::string_view kKey = "environment_id, problem_text";
  static void Visit(auto& row, auto& columns) {
    columns("environment_id", row.environment_id);
    columns("problem_text", row.value.key.problem_text);
    columns("misses", row.value.misses);
    columns("first_seen_us", row.value.first_seen);
    columns("last_seen_us", row.value.last_seen);
    columns("attempts", row.value.attempts);
    columns("last_error", row.value.last_error);
  }
};

struct OutboxRow {
  static constexpr std::string_view kTable = "outbox";
  static constexpr std::string_view kKey = "sequence";
  static void Visit(auto& row, auto& columns) {
    columns("sequence", row.sequence);
    columns("epoch", row.epoch);
    columns("environment_id", row.environment_id);
    columns("problem_text", row.problem_text);
  }
  std::string Label() const { return Concat("sequence ", sequence, ", ", problem_text); }

  int64_t sequence = 0;
  int64_t epoch = 0;
  int64_t environment_id = 0;
  std::string problem_text;
};

// Every table whose rows have checksums.
std::vector<const sqlite::Table*> ChecksummedTables();

// The candidates' samples; candidate_count is 0 if they have none.
SamplesRow ToSamplesRow(int64_t tuning_id, const std::vector<Candidate>& candidates);
// Into the candidates of their tuning. DATA_LOSS if there are fewer.
absl::Status GetSamples(const SamplesRow& row, std::vector<Candidate>* candidates);
// Without key.environment_text and samples. May be called on any thread.
absl::StatusOr<Tuning> ToTuning(const TuningRow& row);

// Of the meta table: numbers about the file, by name. DATA_LOSS without a row of that name.
absl::StatusOr<int64_t> GetMeta(const sqlite::Database& database, std::string_view name);
absl::Status SetMeta(const sqlite::Database& database, std::string_view name, int64_t value);
// Returns the sum.
absl::StatusOr<int64_t> AddToMeta(const sqlite::Database& database, std::string_view name,
                                  int64_t amount);

// Environments gives the ids of environments' rows, which it makes as needed. It lives inside one
// transaction of the caller, who rolls it back on any error. What it remembers
// holds as long. DATA_LOSS: a text leads to the row of another environment, which must not
// be replaced. Not thread-safe; must not outlive the database.
class Environments {
 public:
  explicit Environments(sqlite::Database* database) : database_(database) {}

  // With `environment` it makes the row say that, which also mends a damaged one, and gives
  // INVALID_ARGUMENT if the text is another environment's. Without, a damaged row keeps its id and
  // stays as it is, and a row that is made from the text has the model's short form until a tuning
  // brings the full name; INVALID_ARGUMENT if the text is no environment.
  absl::StatusOr<int64_t> Of(const std::string& text, const Environment* environment = nullptr);

 private:
  struct Known {
    int64_t id = 0;
    std::optional<Environment> environment;  // that the row has, if that was compared
  };

  absl::StatusOr<int64_t> FindOrMake(const std::string& text, const Environment* environment);

  sqlite::Database* const database_;
  std::map<std::string, Known> known_;  // by text
};

// Texts of the environments by id; damaged ones are left out.
absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt);
// Values of the rows of a table whose key begins with an environment, in the order of the
// environments' texts and the rest of the key. In one read transaction.
template <typename Row>
auto ReadKeyed(sqlite::Database& database, const sqlite::CorruptRowSink& corrupt)
    -> absl::StatusOr<std::vector<decltype(Row::value)>> {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto texts, ReadEnvironmentTexts(database, corrupt));
  std::vector<decltype(Row::value)> values;
  const std::string order =
      Concat("JOIN environments USING (environment_id) ORDER BY environments.text, ", Row::kKey);
  RETURN_IF_ERROR(sqlite::ReadRows<Row>(database, order, corrupt, [&](Row row) {
    const auto text = texts.find(row.environment_id);
    if (text == texts.end()) {
      return corrupt(std::string(sqlite::Damaged(row, kLostEnvironment).message()));
    }
    row.value.key.environment_text = text->second;
    values.push_back(std::move(row.value));
  }));
  return values;
}

// Deletes the key's row of such a table; returns how many there were.
template <typename Row>
absl::StatusOr<int64_t> EraseKeyed(const sqlite::Database& database, const TuningKey& key) {
  RETURN_IF_ERROR(database.Run(Concat("DELETE FROM ", Row::kTable,
                                      " WHERE problem_text = ? AND environment_id IN "
                                      "(SELECT environment_id FROM environments WHERE text = ?)"),
                               key.problem_text, key.environment_text));
  return database.Changes();
}

// Those that any row refers to.
absl::StatusOr<std::vector<Environment>> ReadEnvironmentsInUse(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt);

// Ids of environments whose rows were sound, by text. An id holds for ever: no row of an
// environment is deleted or gets another number.
using SoundEnvironments = std::map<std::string, int64_t>;

// Reads the key's tuning with its samples. NOT_FOUND if the database has no such tuning;
// DATA_LOSS if a row of the tuning, of its candidates or of its samples is damaged.
absl::StatusOr<Tuning> ReadStoredTuning(const sqlite::Database& database, const TuningKey& key,
                                        SoundEnvironments* known);

// As TuningStore::ForEachStored, in one read transaction.
absl::Status ForEachStoredTuning(sqlite::Database& database,
                                 const std::function<bool(StoredTuning)>& visit,
                                 const sqlite::CorruptRowSink& corrupt);

// In a transaction of the caller, who rolls it back on any error: stores the tuning in place of
// what its key had. Returns the id of the environment's row. INVALID_ARGUMENT, naming the field, if
// `environment` is not the key's, or a number is NaN or infinite.
absl::StatusOr<int64_t> StoreTuning(sqlite::Database& database, Environments* environments,
                                    const Tuning& tuning, const Environment& environment);

}  // namespace convtune::db::store
