#include "db/fleet/names.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "db/fleet/fleet_migrator.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::db::fleet {
namespace {

constexpr char kEnvironments[] =
    "SELECT text, environment_id FROM environments WHERE text = ANY($1::text[])";
constexpr char kProblems[] = "SELECT text, problem_id FROM problems WHERE text = ANY($1::text[])";

}  // namespace

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

absl::StatusOr<std::vector<std::string>> FleetNames::Read(const std::vector<std::string>& texts,
                                                          const char* select, Ids* ids) {
  std::set<std::string> missing(texts.begin(), texts.end());
  std::erase_if(missing, [&](const std::string& text) { return ids->contains(text); });
  const std::vector<std::string> asked(missing.begin(), missing.end());
  if (asked.empty()) return asked;
  if (fleet_id_.empty()) RETURN_IF_ERROR(CheckFleet());
  ASSIGN_OR_RETURN(const postgres::Result rows, postgres_->Query(select, {asked}));
  for (const postgres::Row row : rows) {
    (*ids)[row[0]] = row[1];
    missing.erase(row[0]);
  }
  return std::vector<std::string>(missing.begin(), missing.end());
}

absl::StatusOr<int64_t> FleetNames::Environment(const convtune::Environment& environment) {
  const std::string text = environment.ToText();
  ASSIGN_OR_RETURN(const std::vector<std::string> unknown,
                   Read({text}, kEnvironments, &environments_));
  if (!unknown.empty()) {
    RETURN_IF_ERROR(postgres_->Execute(
        "INSERT INTO environments (text, name, gpu_model) VALUES ($1, $2, $3) ON CONFLICT "
        "(text) DO NOTHING",
        {text, environment.Name(), environment.gpu_model}));
    RETURN_IF_ERROR(Read(unknown, kEnvironments, &environments_).status());
  }
  return environments_.at(text);
}

absl::Status FleetNames::AddProblems(const std::vector<std::string>& texts) {
  ASSIGN_OR_RETURN(const std::vector<std::string> unknown, Read(texts, kProblems, &problems_));
  if (unknown.empty()) return absl::OkStatus();
  for (const std::string& text : unknown) RETURN_IF_ERROR(ConvProblem::Parse(text).status());
  RETURN_IF_ERROR(postgres_->Execute(
      "INSERT INTO problems (text) SELECT unnest($1::text[]) ON CONFLICT (text) DO NOTHING",
      {unknown}));
  return Read(unknown, kProblems, &problems_).status();
}

absl::StatusOr<int64_t> FleetNames::Problem(const std::string& text) {
  RETURN_IF_ERROR(AddProblems({text}));
  return problems_.at(text);
}

}  // namespace convtune::db::fleet
