// The part of releases.h that keeps pins.
#include "absl/strings/str_cat.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

absl::StatusOr<int64_t> EndPins(postgres::Connection& postgres, int64_t environment_id,
                                int64_t problem_id, const std::string& author) {
  ASSIGN_OR_RETURN(
      const postgres::Result ended,
      postgres.Query("UPDATE pins SET end_time = now(), end_author = $3 WHERE "
                     "environment_id = $1 AND problem_id = $2 AND end_time IS NULL",
                     postgres::Params().Int(environment_id).Int(problem_id).Text(author)));
  return ended.changed();
}

}  // namespace

absl::StatusOr<std::string> ResolveFleetEnvironment(postgres::Connection& postgres,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT text, text = $1 FROM environments WHERE text = $1 OR "
                                  "name = $1 ORDER BY 2 DESC, text",
                                  postgres::Params().Text(name)));
  if (rows.rows() == 0) {
    return absl::NotFoundError(absl::StrCat("environment: the fleet knows no \"", name,
                                            "\"; see `convtune-fleet status`"));
  }
  if (rows.rows() > 1 && !rows.Bool(0, 1)) {
    std::string all;
    for (int row = 0; row < rows.rows(); ++row) {
      absl::StrAppend(&all, row > 0 ? "; " : "", rows.Text(row, 0));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("environment: must be one whole text where several have the name: ", all));
  }
  return rows.Text(0, 0);
}

absl::StatusOr<int64_t> PutFleetPin(postgres::Connection& postgres, FleetNames& names,
                                    const std::string& environment_text,
                                    const std::string& problem_text, const std::string& candidate,
                                    const std::string& author, const std::string& reason,
                                    std::optional<absl::Duration> ttl) {
  ASSIGN_OR_RETURN(const Environment environment, Environment::Parse(environment_text));
  ASSIGN_OR_RETURN(const int64_t environment_id, names.Environment(environment));
  ASSIGN_OR_RETURN(
      const postgres::Result known,
      postgres.Query(absl::StrCat("SELECT p.problem_id, c.candidate_id, ", UsableSql("c"),
                                  " FROM pooled p JOIN problems q USING (problem_id) LEFT JOIN "
                                  "(pooled_candidates c JOIN candidates t ON t.candidate_id = "
                                  "c.candidate_id AND t.text = $3) ON c.environment_id = "
                                  "p.environment_id AND c.problem_id = p.problem_id WHERE "
                                  "p.environment_id = $1 AND q.text = $2"),
                     postgres::Params().Int(environment_id).Text(problem_text).Text(candidate)));
  if (known.rows() == 0) {
    return absl::NotFoundError(absl::StrCat("problem: the fleet has no tuning of ", problem_text,
                                            " in ", environment_text));
  }
  // As a daemon, which would refuse it.
  if (known.IsNull(0, 1) || !known.Bool(0, 2)) {
    return absl::FailedPreconditionError(
        absl::StrCat("candidate: ", candidate, " must be one that the tuning lists and that ran"));
  }
  const int64_t problem_id = known.Int(0, 0);
  const int64_t candidate_id = known.Int(0, 1);
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  RETURN_IF_ERROR(EndPins(postgres, environment_id, problem_id, author).status());
  postgres::Params params;
  params.Int(environment_id).Int(problem_id).Int(candidate_id).Text(author).Text(reason);
  params.MaybeReal(ttl.has_value() ? std::optional<double>(absl::ToDoubleSeconds(*ttl))
                                   : std::nullopt);
  ASSIGN_OR_RETURN(
      const postgres::Result made,
      postgres.Query("INSERT INTO pins (environment_id, problem_id, candidate_id, author, reason, "
                     "expire_time) VALUES ($1, $2, $3, $4, $5, now() + $6::float8 * "
                     "interval '1 second') RETURNING pin_id",
                     params));
  RETURN_IF_ERROR(Announce(postgres, "pin"));
  RETURN_IF_ERROR(transaction.Commit());
  return made.Int(0, 0);
}

absl::Status EndFleetPin(postgres::Connection& postgres, const std::string& environment_text,
                         const std::string& problem_text, const std::string& author) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  ASSIGN_OR_RETURN(
      const postgres::Result key,
      postgres.Query("SELECT e.environment_id, q.problem_id FROM environments e, problems q "
                     "WHERE e.text = $1 AND q.text = $2",
                     postgres::Params().Text(environment_text).Text(problem_text)));
  absl::Status none = absl::NotFoundError(
      absl::StrCat("the fleet has no pin of ", problem_text, " in ", environment_text));
  if (key.rows() == 0) return none;
  ASSIGN_OR_RETURN(const int64_t ended, EndPins(postgres, key.Int(0, 0), key.Int(0, 1), author));
  if (ended == 0) return none;
  RETURN_IF_ERROR(Announce(postgres, "pin"));
  return transaction.Commit();
}

absl::StatusOr<std::vector<FleetPin>> ListFleetPins(postgres::Connection& postgres,
                                                    const std::vector<int64_t>& environments) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          "SELECT p.pin_id, p.environment_id, e.text, q.text, c.text, p.author, "
          "p.reason, p.login, EXTRACT(EPOCH FROM p.expire_time - now())::float8 FROM pins p "
          "JOIN environments e USING (environment_id) JOIN problems q USING "
          "(problem_id) JOIN candidates c USING (candidate_id) WHERE p.end_time IS NULL "
          "AND (p.expire_time IS NULL OR p.expire_time > now()) AND "
          "($1::integer[] = '{}' OR p.environment_id = ANY($1::integer[])) "
          "ORDER BY p.pin_id",
          postgres::Params().Ints(environments)));
  std::vector<FleetPin> pins;
  for (int row = 0; row < rows.rows(); ++row) {
    FleetPin pin{rows.Int(row, 0),  rows.Int(row, 1),  rows.Text(row, 2),
                 rows.Text(row, 3), rows.Text(row, 4), rows.Text(row, 5),
                 rows.Text(row, 6), rows.Text(row, 7), std::nullopt};
    if (!rows.IsNull(row, 8)) pin.left = absl::Seconds(rows.Real(row, 8));
    pins.push_back(std::move(pin));
  }
  return pins;
}

}  // namespace convtune::db::fleet
