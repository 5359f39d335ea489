#include "db/fleet/names.h"

#include "absl/strings/str_cat.h"
#include "db/fleet/fleet_migrator.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::db::fleet {

absl::Status FleetNames::CheckFleet() {
  ASSIGN_OR_RETURN(
      const postgres::Result row,
      postgres_->Query(absl::StrCat("SELECT ", kFleetIdSql, ", compatible_version FROM fleet")));
  if (!row.empty() && int{row[0][1]} > sqlite::LatestVersion(AllFleetMigrations())) {
    return absl::AbortedError("the fleet's database was migrated to a later schema");
  }
  const std::string id = row.empty() ? "" : std::string(row[0][0]);
  if (fleet_id_.empty()) fleet_id_ = id;
  if (id == fleet_id_ && !id.empty()) return absl::OkStatus();
  return absl::AbortedError("the fleet's tables were made anew");
}

absl::StatusOr<postgres::Transaction> FleetNames::Begin() {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(*postgres_));
  RETURN_IF_ERROR(CheckFleet());
  return transaction;
}

absl::Status FleetNames::AddEnvironments(const std::vector<Environment>& environments) {
  std::vector<std::string> texts, names, models;
  for (const Environment& environment : environments) {
    texts.push_back(environment.ToText());
    names.push_back(environment.Name());
    models.push_back(environment.gpu_model);
  }
  // The rows in one order, as in AddProblems.
  return postgres_->Execute(
      "INSERT INTO environments (text, name, gpu_model) SELECT DISTINCT ON (text) * FROM "
      "unnest($1::text[], $2::text[], $3::text[]) AS a(text, name, gpu_model) WHERE NOT EXISTS "
      "(SELECT 1 FROM environments e WHERE e.text = a.text) ORDER BY text ON CONFLICT (text) DO "
      "NOTHING",
      {texts, names, models});
}

absl::Status FleetNames::AddProblems(const std::vector<std::string>& texts) {
  if (texts.empty()) return absl::OkStatus();
  for (const std::string& text : texts) RETURN_IF_ERROR(ConvProblem::Parse(text).status());
  return postgres_->Execute(
      "INSERT INTO problems (text) SELECT DISTINCT text FROM unnest($1::text[]) AS a(text) WHERE "
      "NOT EXISTS (SELECT 1 FROM problems p WHERE p.text = a.text) ORDER BY text ON CONFLICT "
      "(text) "
      "DO NOTHING",
      {texts});
}

}  // namespace convtune::db::fleet
