#include "db/fleet/names.h"

#include <set>

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

absl::Status FleetNames::Read(const std::vector<std::string>& texts, const Table& table) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres_->Query(absl::StrCat("SELECT text, ", table.id, " FROM ", table.name,
                                                 " WHERE text = ANY($1::text[])"),
                                    {texts}));
  for (const postgres::Row row : rows) (*table.ids)[row[0]] = row[1];
  return absl::OkStatus();
}

absl::Status FleetNames::Add(const std::vector<std::string>& texts, const Table& table,
                             const Insert& insert) {
  const auto is_known = [&](const std::string& text) { return table.ids->contains(text); };
  std::set<std::string> missing(texts.begin(), texts.end());
  std::erase_if(missing, is_known);
  if (missing.empty()) return absl::OkStatus();
  if (fleet_id_.empty()) RETURN_IF_ERROR(CheckFleet());
  RETURN_IF_ERROR(Read({missing.begin(), missing.end()}, table));
  std::erase_if(missing, is_known);
  if (missing.empty()) return absl::OkStatus();
  const std::vector<std::string> unknown(missing.begin(), missing.end());
  RETURN_IF_ERROR(insert(unknown));
  return Read(unknown, table);
}

absl::StatusOr<int64_t> FleetNames::Environment(const convtune::Environment& environment) {
  const std::string text = environment.ToText();
  RETURN_IF_ERROR(Add({text}, {"environments", "environment_id", &environments_},
                      [&](const std::vector<std::string>& /*unknown*/) {
                        return postgres_->Execute(
                            "INSERT INTO environments (text, name, gpu_model) VALUES ($1, $2, $3) "
                            "ON CONFLICT DO NOTHING",
                            {text, environment.Name(), environment.gpu_model});
                      }));
  return environments_.at(text);
}

absl::Status FleetNames::AddProblems(const std::vector<std::string>& texts) {
  return Add(texts, {"problems", "problem_id", &problems_},
             [&](const std::vector<std::string>& unknown) {
               for (const std::string& text : unknown) {
                 RETURN_IF_ERROR(ConvProblem::Parse(text).status());
               }
               return postgres_->Execute(
                   "INSERT INTO problems (text) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING",
                   {unknown});
             });
}

absl::StatusOr<int64_t> FleetNames::Problem(const std::string& text) {
  RETURN_IF_ERROR(AddProblems({text}));
  return problems_.at(text);
}

}  // namespace convtune::db::fleet
