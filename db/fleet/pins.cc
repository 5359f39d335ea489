// The part of releases.h that keeps pins.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "db/bundle/bundle_signature.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

absl::StatusOr<int64_t> EndPins(postgres::Connection& postgres, const std::string& environment_text,
                                const std::string& problem_text, const std::string& author) {
  return postgres.Change(
      "UPDATE pins SET end_time = now(), end_author = $3 WHERE environment_id = (SELECT "
      "environment_id FROM environments WHERE text = $1) AND problem_id = (SELECT problem_id FROM "
      "problems WHERE text = $2) AND end_time IS NULL",
      {environment_text, problem_text, author});
}

std::string PinDigest(const FleetPin& pin, std::optional<absl::Time> expire_time) {
  return bundle::DigestOfTexts({"convtune fleet pin 1", pin.environment_text, pin.problem_text,
                                pin.candidate, pin.author, pin.reason, DigestTime(expire_time)});
}

}  // namespace

absl::StatusOr<std::string> ResolveFleetEnvironment(postgres::Connection& postgres,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT text, text = $1 FROM environments WHERE text = $1 OR "
                                  "name = $1 ORDER BY 2 DESC, text",
                                  {name}));
  if (rows.empty()) {
    return absl::NotFoundError(absl::StrCat("environment: the fleet knows no \"", name,
                                            "\"; see `convtune-fleet status`"));
  }
  if (rows.size() > 1 && !rows[0][1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("environment: must be one whole text where several have the name: ",
                     absl::StrJoin(rows.Column<std::string>(), "; ")));
  }
  return rows[0][0];
}

absl::StatusOr<int64_t> PutFleetPin(postgres::Connection& postgres, FleetNames& names,
                                    const FleetPin& pin, const DecisionKey& key) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  ASSIGN_OR_RETURN(
      const postgres::Result known,
      postgres.Query("SELECT $3 = ANY(p.candidates), environment_id, problem_id FROM pooled p JOIN "
                     "environments e USING (environment_id) JOIN problems q USING (problem_id) "
                     "WHERE e.text = $1 AND q.text = $2",
                     {pin.environment_text, pin.problem_text, pin.candidate}));
  if (known.empty()) {
    return absl::NotFoundError(absl::StrCat("problem: the fleet has no tuning of ",
                                            pin.problem_text, " in ", pin.environment_text));
  }
  // Daemons would refuse the pin for the same reason.
  if (!known[0][0]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "candidate: ", pin.candidate, " must be one that the tuning lists and that ran"));
  }
  RETURN_IF_ERROR(EndPins(postgres, pin.environment_text, pin.problem_text, pin.author).status());
  ASSIGN_OR_RETURN(const std::optional<absl::Time> expire_time, ExpireTime(postgres, pin.left));
  ASSIGN_OR_RETURN(postgres::Params params, SignDecision(PinDigest(pin, expire_time), key));
  params.insert(params.end(), {expire_time, int64_t{known[0][1]}, int64_t{known[0][2]},
                               pin.candidate, pin.author, pin.reason});
  ASSIGN_OR_RETURN(const int64_t number,
                   postgres.QueryValue<int64_t>(
                       "INSERT INTO pins (digest, public_key, signature, expire_time, "
                       "environment_id, problem_id, candidate, author, reason) VALUES ($1, $2, $3, "
                       "$4, $5, $6, $7, $8, $9) RETURNING pin_id",
                       params));
  RETURN_IF_ERROR(Announce(postgres, "pin"));
  RETURN_IF_ERROR(transaction.Commit());
  return number;
}

absl::Status EndFleetPin(postgres::Connection& postgres, const std::string& environment_text,
                         const std::string& problem_text, const std::string& author) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  ASSIGN_OR_RETURN(const int64_t ended, EndPins(postgres, environment_text, problem_text, author));
  if (ended == 0) {
    return absl::NotFoundError(
        absl::StrCat("the fleet has no pin of ", problem_text, " in ", environment_text));
  }
  RETURN_IF_ERROR(Announce(postgres, "pin"));
  return transaction.Commit();
}

absl::StatusOr<std::vector<FleetPin>> ListFleetPins(postgres::Connection& postgres,
                                                    const std::vector<std::string>& trusted) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(
          "SELECT pin_id, e.text, q.text, candidate, author, reason, login, EXTRACT(EPOCH FROM "
          "expire_time - now())::float8, expire_time, digest, public_key, signature FROM pins JOIN "
          "environments e USING (environment_id) JOIN problems q USING (problem_id) WHERE ",
          kActive, " ORDER BY pin_id")));
  std::vector<FleetPin> pins;
  for (const postgres::Row row : rows) {
    FleetPin pin{
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7].Maybe<absl::Duration>(), ""};
    pin.error = CheckDecision(PinDigest(pin, row[8].Maybe<absl::Time>()), row, 9, trusted);
    pins.push_back(std::move(pin));
  }
  return pins;
}

}  // namespace convtune::db::fleet
