#include "db/store/release_reader.h"

#include <optional>
#include <utility>

#include "db/sqlite/transaction.h"
#include "db/store/release_tables.h"
#include "db/store/tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {
namespace {

// Rows of the nearest release up to ?1 that has the problem.
constexpr char kEffective[] =
    "c.release_number = (SELECT MAX(r.release_number) FROM choices r WHERE "
    "r.environment_id = c.environment_id AND r.problem_text = c.problem_text AND "
    "r.release_number <= ?1)";

// Puts the rows of one portfolio together.
class Assembly {
 public:
  explicit Assembly(const ChoiceRow& first)
      : environment_id_(first.environment_id), expected_(first.choice_count) {
    portfolio_.key.problem_text = first.problem_text;
    portfolio_.evidence = first.evidence;
    portfolio_.release = first.release_number;
  }

  bool Holds(const ChoiceRow& row) const {
    return row.environment_id == environment_id_ && row.problem_text == portfolio_.key.problem_text;
  }
  void Add(ChoiceRow row) {
    if (row.choice_count == 0) return;
    in_order_ = in_order_ && row.place == static_cast<int64_t>(portfolio_.choices.size()) &&
                row.choice_count == expected_;
    portfolio_.choices.push_back(std::move(row.choice));
  }
  int64_t environment_id() const { return environment_id_; }
  // DATA_LOSS if a row is damaged or missing.
  absl::StatusOr<Portfolio> Take(const std::string& environment_text) {
    if (!in_order_ || static_cast<int64_t>(portfolio_.choices.size()) != expected_) {
      return absl::DataLossError(
          Concat("choices rows (", portfolio_.key.problem_text, "): a choice is missing"));
    }
    portfolio_.key.environment_text = environment_text;
    return std::move(portfolio_);
  }

 private:
  const int64_t environment_id_;
  const int64_t expected_;
  bool in_order_ = true;
  Portfolio portfolio_;
};

}  // namespace

absl::StatusOr<std::vector<Release>> ReadStoredReleases(sqlite::Database& database,
                                                        const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat("SELECT ", ReleaseTable().SelectList("r"),
                                           " FROM releases r ORDER BY r.release_number")));
  std::vector<Release> releases;
  RETURN_IF_ERROR(ForEachRow(statement, ReadRelease, corrupt,
                             [&](Release release) { releases.push_back(std::move(release)); }));
  return releases;
}

absl::StatusOr<Portfolio> ReadStoredPortfolio(sqlite::Database& database, const TuningKey& key,
                                              int64_t release) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(Concat("SELECT ", ChoiceTable().SelectList("c"), ", ",
                              EnvironmentTable().SelectList("e"),
                              " FROM choices c JOIN environments e USING (environment_id) "
                              "WHERE e.text = ?2 AND c.problem_text = ?3 AND ",
                              kEffective, " ORDER BY c.place")));
  statement.BindInt(1, release);
  statement.BindText(2, key.environment_text);
  statement.BindText(3, key.problem_text);
  std::optional<Assembly> assembly;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) break;
    ASSIGN_OR_RETURN(ChoiceRow row, ReadChoice(statement));
    if (row.problem_text != key.problem_text) {
      return Damaged(ChoiceTable(), row.problem_text, kWrongRow);
    }
    if (!assembly) {
      assembly.emplace(row);
      const int after = static_cast<int>(ChoiceTable().columns.size()) + 1;
      ASSIGN_OR_RETURN(const EnvironmentRow environment, ReadEnvironment(statement, after));
      if (environment.text != key.environment_text) {
        return Damaged(EnvironmentTable(), environment.text, kWrongRow);
      }
    }
    assembly->Add(std::move(row));
  }
  if (!assembly) {
    return absl::NotFoundError(Concat("no choice for ", key.problem_text, " in ",
                                      key.environment_text, " up to release ", release));
  }
  return assembly->Take(key.environment_text);
}

absl::Status ForEachStoredPortfolio(sqlite::Database& database, const std::string& environment_text,
                                    int64_t release, const std::function<void(Portfolio)>& visit,
                                    const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(Concat("SELECT ", ChoiceTable().SelectList("c"),
                              " FROM choices c JOIN environments e USING (environment_id) WHERE "
                              "(?2 = '' OR e.text = ?2) AND ",
                              kEffective, " ORDER BY e.text, c.problem_text, c.place")));
  statement.BindInt(1, release);
  statement.BindText(2, environment_text);
  std::optional<Assembly> assembly;
  const auto finish = [&] {
    if (!assembly) return;
    const auto environment = environments.find(assembly->environment_id());
    // A damaged environment was reported already.
    if (environment != environments.end()) {
      absl::StatusOr<Portfolio> portfolio = assembly->Take(environment->second);
      if (portfolio.ok()) {
        visit(*std::move(portfolio));
      } else {
        corrupt(std::string(portfolio.status().message()));
      }
    }
    assembly.reset();
  };
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) break;
    absl::StatusOr<ChoiceRow> row = ReadChoice(statement);
    if (!row.ok()) {
      corrupt(std::string(row.status().message()));
      // Whose it is cannot be trusted either; what it was a part of is found
      // incomplete by its count.
      continue;
    }
    if (assembly && !assembly->Holds(*row)) finish();
    if (!assembly) assembly.emplace(*row);
    assembly->Add(*std::move(row));
  }
  finish();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WantedProblem>> ReadStoredWanted(sqlite::Database& database,
                                                            const CorruptRowSink& corrupt) {
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction, sqlite::Transaction::BeginRead(database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(database, corrupt));
  ASSIGN_OR_RETURN(
      sqlite::Statement statement,
      database.Prepare(Concat("SELECT ", WantedTable().SelectList("w"),
                              " FROM wanted w JOIN environments e USING (environment_id) "
                              "ORDER BY e.text, w.problem_text")));
  std::vector<WantedProblem> wanted;
  RETURN_IF_ERROR(ForEachRow(statement, ReadWanted, corrupt, [&](WantedRow row) {
    const auto environment = environments.find(row.environment_id);
    if (environment == environments.end()) return;
    row.wanted.key.environment_text = environment->second;
    wanted.push_back(std::move(row.wanted));
  }));
  return wanted;
}

}  // namespace convtune::db::store
