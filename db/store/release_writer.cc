#include "db/store/release_writer.h"

#include <cmath>
#include <map>
#include <string>

#include "db/store/release_tables.h"
#include "db/store/tuning_writer.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {
namespace {

// Ids of environments by text, each asked for once.
class EnvironmentIds {
 public:
  explicit EnvironmentIds(sqlite::Database& database) : database_(database) {}

  absl::StatusOr<int64_t> Of(const std::string& text) {
    const auto known = ids_.find(text);
    if (known != ids_.end()) return known->second;
    ASSIGN_OR_RETURN(const int64_t id, EnsureEnvironment(database_, text));
    ids_.emplace(text, id);
    return id;
  }

 private:
  sqlite::Database& database_;
  std::map<std::string, int64_t> ids_;
};

absl::Status StorePortfolio(const Portfolio& portfolio, int64_t environment_id, int64_t release,
                            sqlite::Statement& insert) {
  ChoiceRow row;
  row.environment_id = environment_id;
  row.problem_text = portfolio.key.problem_text;
  row.release_number = release;
  row.evidence = portfolio.evidence;
  row.choice_count = static_cast<int64_t>(portfolio.choices.size());
  if (portfolio.choices.empty()) return WriteChoice(row, insert);
  for (const Choice& choice : portfolio.choices) {
    if (!std::isfinite(choice.candidate.median_us)) {
      return absl::InvalidArgumentError(
          Concat("choices[", row.place, "].median_us: must be a finite number"));
    }
    row.choice = choice;
    RETURN_IF_ERROR(WriteChoice(row, insert));
    ++row.place;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StoreRelease(sqlite::Database& database, const Release& release,
                          const std::vector<Portfolio>& portfolios) {
  ASSIGN_OR_RETURN(sqlite::Statement upsert,
                   database.Prepare(ReleaseTable().UpsertSql("release_number")));
  RETURN_IF_ERROR(WriteRelease(release, upsert));
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM choices WHERE environment_id = ? AND "
                                    "problem_text = ? AND release_number = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement insert, database.Prepare(ChoiceTable().InsertSql()));
  EnvironmentIds ids(database);
  for (const Portfolio& portfolio : portfolios) {
    ASSIGN_OR_RETURN(const int64_t id, ids.Of(portfolio.key.environment_text));
    erase.BindInt(1, id);
    erase.BindText(2, portfolio.key.problem_text);
    erase.BindInt(3, release.number);
    RETURN_IF_ERROR(erase.Run());
    RETURN_IF_ERROR(StorePortfolio(portfolio, id, release.number, insert));
  }
  return absl::OkStatus();
}

absl::Status ErasePortfoliosOf(sqlite::Database& database, int64_t release) {
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM choices WHERE release_number = ?"));
  erase.BindInt(1, release);
  return erase.Run();
}

absl::StatusOr<int64_t> ErasePortfoliosBefore(sqlite::Database& database, int64_t oldest) {
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM choices AS c WHERE c.release_number < ?1 AND "
                                    "EXISTS (SELECT 1 FROM choices n WHERE "
                                    "n.environment_id = c.environment_id AND "
                                    "n.problem_text = c.problem_text AND "
                                    "n.release_number > c.release_number AND "
                                    "n.release_number <= ?1)"));
  erase.BindInt(1, oldest);
  RETURN_IF_ERROR(erase.Run());
  return database.Changes();
}

absl::Status StoreWanted(sqlite::Database& database, const std::vector<WantedProblem>& put,
                         const std::vector<TuningKey>& drop) {
  EnvironmentIds ids(database);
  ASSIGN_OR_RETURN(sqlite::Statement upsert,
                   database.Prepare(WantedTable().UpsertSql("environment_id, problem_text")));
  for (const WantedProblem& wanted : put) {
    WantedRow row;
    ASSIGN_OR_RETURN(row.environment_id, ids.Of(wanted.key.environment_text));
    row.wanted = wanted;
    RETURN_IF_ERROR(WriteWanted(row, upsert));
  }
  for (const TuningKey& key : drop) {
    RETURN_IF_ERROR(EraseByKey(database, WantedTable().name, key).status());
  }
  return absl::OkStatus();
}

}  // namespace convtune::db::store
