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
  ASSIGN_OR_RETURN(
      const postgres::Result unknown,
      postgres_->Query("SELECT DISTINCT text FROM unnest($1::text[]) AS a(text) WHERE NOT EXISTS "
                       "(SELECT 1 FROM problems p WHERE p.text = a.text)",
                       {texts}));
  if (unknown.empty()) return absl::OkStatus();
  // Only these are judged: a newer node's problem may be one that this program cannot read.
  std::vector<std::string> added;
  for (const postgres::Row row : unknown) {
    added.push_back(row[0]);
    RETURN_IF_ERROR(ConvProblem::Parse(added.back()).status());
  }
  return postgres_->Execute(
      "INSERT INTO problems (text) SELECT text FROM unnest($1::text[]) AS a(text) ORDER BY text "
      "ON CONFLICT (text) DO NOTHING",
      {added});
}

}  // namespace convtune::db::fleet
