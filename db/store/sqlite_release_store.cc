// The part of the store that keeps releases and wanted problems.
#include <cmath>
#include <optional>
#include <utility>

#include "db/store/environments.h"
#include "db/store/rows.h"
#include "db/store/sqlite_store.h"

namespace convtune::db::store {
namespace {

using sqlite::ReadRow;
using sqlite::TableOf;

// Rows of the nearest release up to ?1 that has the problem.
constexpr char kEffective[] =
    "choices.release_number = (SELECT MAX(r.release_number) FROM choices r WHERE "
    "r.environment_id = choices.environment_id AND r.problem_text = choices.problem_text AND "
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
  void Add(const ChoiceRow& row) {
    if (row.choice_count == 0) return;
    in_order_ = in_order_ && row.place == static_cast<int64_t>(portfolio_.choices.size()) &&
                row.choice_count == expected_ && row.candidate.has_value();
    Candidate& candidate = portfolio_.choices.emplace_back(row.choice).candidate;
    candidate.id = row.candidate.value_or(CandidateId());
    candidate.status =
        candidate.median_us > 0 ? CandidateStatus::kTimed : CandidateStatus::kFinalized;
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

// Replaces what the release had for the same problems, in a transaction of the caller.
// INVALID_ARGUMENT, naming the field, if a number is NaN or infinite.
absl::Status StorePortfolios(sqlite::Database& database, int64_t release,
                             const std::vector<Portfolio>& portfolios) {
  ASSIGN_OR_RETURN(sqlite::Statement erase,
                   database.Prepare("DELETE FROM choices WHERE environment_id = ? AND "
                                    "problem_text = ? AND release_number = ?"));
  ASSIGN_OR_RETURN(sqlite::Statement insert, database.Prepare(TableOf<ChoiceRow>().insert));
  Environments environments(&database);
  for (const Portfolio& portfolio : portfolios) {
    ChoiceRow row;
    ASSIGN_OR_RETURN(row.environment_id, environments.Of(portfolio.key.environment_text));
    row.problem_text = portfolio.key.problem_text;
    row.release_number = release;
    row.choice_count = static_cast<int64_t>(portfolio.choices.size());
    row.evidence = portfolio.evidence;
    RETURN_IF_ERROR(erase.Bind(row.environment_id, row.problem_text, release).Run());
    if (portfolio.choices.empty()) RETURN_IF_ERROR(sqlite::WriteRow(row, &insert));
    for (const Choice& choice : portfolio.choices) {
      if (!std::isfinite(choice.candidate.median_us)) {
        return absl::InvalidArgumentError(
            Concat("choices[", row.place, "].median_us: must be a finite number"));
      }
      row.choice = choice;
      row.candidate = choice.candidate.id;
      if (!choice.candidate.timed()) row.choice.candidate.median_us = 0;
      RETURN_IF_ERROR(sqlite::WriteRow(row, &insert));
      ++row.place;
    }
  }
  return absl::OkStatus();
}

// DATA_LOSS if a row of it is damaged.
absl::StatusOr<Portfolio> ReadPortfolio(sqlite::Database& database, const TuningKey& key,
                                        int64_t release) {
  ASSIGN_OR_RETURN(sqlite::Statement statement,
                   database.Prepare(Concat(
                       "SELECT ", TableOf<ChoiceRow>().list, ", ", TableOf<EnvironmentRow>().list,
                       " FROM choices JOIN environments USING (environment_id) "
                       "WHERE environments.text = ?2 AND choices.problem_text = ?3 AND ",
                       kEffective, " ORDER BY choices.place")));
  statement.Bind(release, key.environment_text, key.problem_text);
  std::optional<Assembly> assembly;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, statement.Step());
    if (!more) break;
    ASSIGN_OR_RETURN(const ChoiceRow row, ReadRow<ChoiceRow>(statement));
    if (row.problem_text != key.problem_text) return sqlite::Damaged(row, kWrongRow);
    if (!assembly) {
      ASSIGN_OR_RETURN(const EnvironmentRow environment,
                       ReadRow<EnvironmentRow>(statement, TableOf<ChoiceRow>().width()));
      if (environment.text != key.environment_text) return sqlite::Damaged(environment, kWrongRow);
      assembly.emplace(row);
    }
    assembly->Add(row);
  }
  if (!assembly) {
    return absl::NotFoundError(Concat("no choice for ", key.problem_text, " in ",
                                      key.environment_text, " up to release ", release));
  }
  return assembly->Take(key.environment_text);
}

}  // namespace

absl::StatusOr<std::vector<Release>> SqliteStore::ListReleases() {
  return Read([this](sqlite::Database& database) {
    return sqlite::ReadValues<ReleaseRow>(database, options_.notice);
  });
}

absl::Status SqliteStore::PutRelease(const Release& release,
                                     const std::vector<Portfolio>& portfolios) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    RETURN_IF_ERROR(sqlite::PutRow(database, ReleaseRow{release}));
    if (release.state == ReleaseState::kRolledBack) {
      RETURN_IF_ERROR(database.Run("DELETE FROM choices WHERE release_number = ?", release.number));
    }
    return StorePortfolios(database, release.number, portfolios);
  });
}

absl::StatusOr<Portfolio> SqliteStore::GetPortfolio(const TuningKey& key, int64_t release) {
  return Read([&](sqlite::Database& database) { return ReadPortfolio(database, key, release); });
}

absl::Status SqliteStore::ForEachPortfolio(const std::string& environment_text, int64_t release,
                                           const std::function<void(Portfolio)>& visit,
                                           const std::function<void(const std::string&)>& corrupt) {
  // It reads long: look-ups of tunings are not to wait for it.
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  ASSIGN_OR_RETURN(const sqlite::Transaction transaction,
                   sqlite::Transaction::BeginRead(*database));
  ASSIGN_OR_RETURN(const auto environments, ReadEnvironmentTexts(*database, corrupt));
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
  // Whose a damaged row is cannot be trusted; what it was a part of is found incomplete by its
  // count.
  RETURN_IF_ERROR(sqlite::ReadRows<ChoiceRow>(
      *database,
      Concat("JOIN environments USING (environment_id) WHERE (?2 = '' OR environments.text = ?2) "
             "AND ",
             kEffective, " ORDER BY environments.text, choices.problem_text, choices.place"),
      corrupt,
      [&](const ChoiceRow& row) {
        if (assembly && !assembly->Holds(row)) finish();
        if (!assembly) assembly.emplace(row);
        assembly->Add(row);
      },
      release, environment_text));
  finish();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteStore::ThinPortfolios(int64_t oldest) {
  return WriteAndCount([oldest](sqlite::Database& database) -> absl::StatusOr<int64_t> {
    RETURN_IF_ERROR(
        database.Run("DELETE FROM choices AS c WHERE c.release_number < ?1 AND "
                     "EXISTS (SELECT 1 FROM choices n WHERE "
                     "n.environment_id = c.environment_id AND "
                     "n.problem_text = c.problem_text AND "
                     "n.release_number > c.release_number AND "
                     "n.release_number <= ?1)",
                     oldest));
    return database.Changes();
  });
}

absl::Status SqliteStore::CheckServed() {
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  for (const sqlite::Table* table : ChecksummedTables()) {
    // Most of the file, and nothing that is served rests on it.
    if (table->name == SamplesRow::kTable) continue;
    const absl::Status sound = database->QuickCheck(table->name);
    if (absl::IsDataLoss(sound)) {
      MutexLock lock(write_mutex_);
      damaged_ = true;
    }
    RETURN_IF_ERROR(sound);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SqliteStore::CarriesOver() {
  return Read([](sqlite::Database& database) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const int64_t carries_over, GetMeta(database, "carry_over"));
    return carries_over != 0;
  });
}

absl::Status SqliteStore::SetCarryOver(bool carry_over) {
  return Write([carry_over](sqlite::Database& database) {
    return SetMeta(database, "carry_over", carry_over ? 1 : 0);
  });
}

absl::Status SqliteStore::UpdateWanted(const std::vector<WantedProblem>& put,
                                       const std::vector<TuningKey>& drop) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    Environments environments(&database);
    for (const WantedProblem& wanted : put) {
      ASSIGN_OR_RETURN(const int64_t id, environments.Of(wanted.key.environment_text));
      RETURN_IF_ERROR(sqlite::PutRow(database, WantedRow{id, wanted}));
    }
    for (const TuningKey& key : drop) {
      RETURN_IF_ERROR(EraseKeyed<WantedRow>(database, key).status());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<WantedProblem>> SqliteStore::ListWanted() {
  return Read([this](sqlite::Database& database) {
    return ReadKeyed<WantedRow>(database, options_.notice);
  });
}

}  // namespace convtune::db::store
