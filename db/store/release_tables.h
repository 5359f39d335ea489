// Rows of the tables of releases, choices and missed problems, and their values; see
// tables.h.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/row_codec.h"
#include "db/sqlite/statement.h"
#include "proto/model/release/release.h"

namespace convtune::db::store {

const sqlite::Table& ReleaseTable();
const sqlite::Table& ChoiceTable();
const sqlite::Table& WantedTable();

struct ChoiceRow {
  int64_t environment_id = 0;
  std::string problem_text;
  int64_t release_number = 0;
  int64_t place = 0;
  int64_t choice_count = 0;  // 0: the problem has none; `choice` is then empty
  Evidence evidence = Evidence::kNone;
  Choice choice;
};

struct WantedRow {
  int64_t environment_id = 0;
  WantedProblem wanted;  // without key.environment_text
};

// From the row that `statement` stands on, whose columns begin with the table's
// SelectList(). DATA_LOSS if it is damaged.
absl::StatusOr<Release> ReadRelease(const sqlite::Statement& statement);
absl::StatusOr<ChoiceRow> ReadChoice(const sqlite::Statement& statement);
absl::StatusOr<WantedRow> ReadWanted(const sqlite::Statement& statement);

// Into a statement of the table's InsertSql() or UpsertSql().
absl::Status WriteRelease(const Release& release, sqlite::Statement& statement);
absl::Status WriteChoice(const ChoiceRow& row, sqlite::Statement& statement);
absl::Status WriteWanted(const WantedRow& row, sqlite::Statement& statement);

}  // namespace convtune::db::store
