#include "db/store/environments.h"

#include <utility>

#include "db/store/rows.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {

absl::StatusOr<int64_t> Environments::Of(const std::string& text, const Environment* environment) {
  Known& known = known_[text];
  if (known.id != 0 && (environment == nullptr || known.environment == *environment)) {
    return known.id;
  }
  if (environment != nullptr && environment->ToText() != text) {
    return absl::InvalidArgumentError(
        Concat("environment: must be the key's, ", text, ", is ", environment->ToText()));
  }
  ASSIGN_OR_RETURN(known.id, FindOrMake(text, environment));
  if (environment != nullptr) known.environment = *environment;
  return known.id;
}

absl::StatusOr<int64_t> Environments::FindOrMake(const std::string& text,
                                                 const Environment* environment) {
  EnvironmentRow row;
  {
    ASSIGN_OR_RETURN(sqlite::Statement statement,
                     database_->Prepare(Concat("SELECT ", sqlite::TableOf<EnvironmentRow>().list,
                                               " FROM environments WHERE text = ?")));
    statement.Bind(text);
    ASSIGN_OR_RETURN(const bool found, statement.Step());
    if (found) {
      row.id = statement.Int(0);
      const absl::StatusOr<EnvironmentRow> stored = sqlite::ReadRow<EnvironmentRow>(statement);
      if (stored.ok() && stored->text != text) return sqlite::Damaged(*stored, kWrongRow);
      // One that is the same is left alone: SQLite looks at every tuning that refers to a row
      // whose key an upsert names.
      if (environment == nullptr || (stored.ok() && stored->environment == *environment)) {
        return row.id;
      }
    }
  }
  if (row.id == 0) {
    // Rows number themselves before they are written, since the number is part of the checksum.
    ASSIGN_OR_RETURN(row.id, database_->QueryInt("SELECT COALESCE(MAX(environment_id), 0) + 1 "
                                                 "FROM environments"));
  }
  row.text = text;
  if (environment != nullptr) {
    row.environment = *environment;
  } else {
    ASSIGN_OR_RETURN(row.environment, Environment::Parse(text));
  }
  row.name = row.environment.Name();
  RETURN_IF_ERROR(sqlite::PutRow(*database_, row));
  return row.id;
}

absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt) {
  std::map<int64_t, std::string> texts;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(database, "", corrupt, [&](EnvironmentRow row) {
    texts.emplace(row.id, std::move(row.text));
  }));
  return texts;
}

absl::StatusOr<std::vector<Environment>> ReadEnvironmentsInUse(
    const sqlite::Database& database, const sqlite::CorruptRowSink& corrupt) {
  std::string in_use;
  for (const char* table : {"tunings", "pins", "quarantine", "choices", "wanted"}) {
    AppendTo(&in_use, in_use.empty() ? "WHERE " : " OR ", "EXISTS (SELECT 1 FROM ", table,
             " t WHERE t.environment_id = environments.environment_id)");
  }
  std::vector<Environment> environments;
  RETURN_IF_ERROR(sqlite::ReadRows<EnvironmentRow>(
      database, in_use + " ORDER BY text", corrupt,
      [&](EnvironmentRow row) { environments.push_back(std::move(row.environment)); }));
  return environments;
}

}  // namespace convtune::db::store
