// Environments gives the ids of environments' rows, which it makes as needed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/sqlite/row_table.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/digest.h"

namespace convtune::db::store {

// Inside one transaction of the caller, who rolls it back on any error. What it remembers
// holds as long. DATA_LOSS: a text leads to the row of another environment, which must not
// be replaced. Not thread-safe; must not outlive the database.
class Environments {
 public:
  explicit Environments(sqlite::Database* database) : database_(database) {}

  // Whether the row is sound or not. One that is made from the text has the model's short
  // form until a tuning brings the full name. INVALID_ARGUMENT if it is no environment.
  absl::StatusOr<int64_t> Of(const std::string& text) { return Of(text, nullptr); }
  // Makes the row say what `environment` says, which also mends a damaged one.
  // INVALID_ARGUMENT if the text is another environment's.
  absl::StatusOr<int64_t> Of(const std::string& text, const Environment& environment) {
    return Of(text, &environment);
  }

 private:
  struct Known {
    int64_t id = 0;
    std::optional<Environment> environment;  // that the row has, if that was compared
  };

  absl::StatusOr<int64_t> Of(const std::string& text, const Environment* environment);
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
      return corrupt(std::string(sqlite::Damaged(row, "its environment is damaged").message()));
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

}  // namespace convtune::db::store
