// The rows of the daemon's tables (see sqlite/row_table.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "proto/base/strings.h"
#include "proto/model/release/release.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

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

// A row whose key begins with an environment. The value lacks key.environment_text.
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

}  // namespace convtune::db::store
