#include "db/fleet/bans.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "db/bundle/bundle_signature.h"
#include "db/fleet/evidence.h"
#include "db/fleet/nodes.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "proto/model/violation.h"

namespace convtune::db::fleet {
namespace {

// Held until the commit, so that two who ban the same at once make one ban.
constexpr char kBanLock[] = "SELECT pg_advisory_xact_lock(hashtextextended('convtune ban', 0))";

// The digest of a ban. `columns`: those from `candidate` to `reason`, as texts.
std::string BanDigest(const std::vector<std::string>& columns,
                      std::optional<absl::Time> expire_time) {
  std::vector<std::string> texts = {"convtune fleet ban 1"};
  texts.insert(texts.end(), columns.begin(), columns.end());
  texts.push_back(DigestTime(expire_time));
  return bundle::DigestOfTexts(texts);
}

FleetBan ReadFleetBan(const postgres::Row& row, const std::vector<std::string>& trusted) {
  v1::Ban proto;
  proto.set_fleet_ban(row[0]);
  proto.set_candidate(std::string(row[1]));
  proto.set_cudnn(std::string(row[2]));
  proto.set_gpu(std::string(row[3]));
  proto.set_operation(row[4]);
  proto.set_data_type(row[5]);
  proto.set_layout(row[6]);
  proto.set_author(std::string(row[7]));
  proto.set_reason(std::string(row[8]));
  std::vector<Violation> violations;
  FleetBan one;
  one.ban = BanFromProto(proto, "ban", &violations);
  one.error = ToString(violations);
  one.login = row[9];
  one.ban.create_time = row[10];
  one.ban.expire_time = row[11].Maybe<absl::Time>();
  one.left = row[12].Maybe<absl::Duration>();
  std::vector<std::string> columns;
  for (int column = 1; column <= 8; ++column) columns.push_back(row[column]);
  const std::string wrong =
      CheckDecision(BanDigest(columns, one.ban.expire_time), row, 13, trusted);
  if (!wrong.empty()) one.error = wrong;
  return one;
}

// Tunings that one statement reads. They are judged before the next one begins, so no statement
// takes as long as the judgement of all, which its time limit would end.
constexpr int kTuningsAtOnce = 200;

// The candidates of the fleet's that the pattern fits.
absl::StatusOr<std::vector<std::string>> FittingCandidates(postgres::Connection& postgres,
                                                           const CandidatePattern& pattern) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT DISTINCT unnest(candidates) FROM pooled"));
  std::vector<std::string> texts = rows.Column<std::string>();
  std::erase_if(texts, [&](const std::string& text) {
    const absl::StatusOr<CandidateId> candidate = ParseCandidateId(text);
    return !candidate.ok() || !pattern.Fits(*candidate);
  });
  return texts;
}

}  // namespace

absl::StatusOr<int64_t> PutFleetBan(postgres::Connection& postgres, const Ban& ban,
                                    std::optional<absl::Duration> left, const DecisionKey& key) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kBanLock));
  ASSIGN_OR_RETURN(const std::vector<FleetBan> known, ListFleetBans(postgres));
  RETURN_IF_ERROR(ReadableBans(known).CheckIsNew(ban, kMostFleetBans));
  const auto number = [](const auto& value) {
    return absl::StrCat(value ? static_cast<int64_t>(*value) : 0);
  };
  const std::vector<std::string> columns = {
      ban.candidate.ToText(), ban.cudnn.ToText(), ban.gpu,    number(ban.operation),
      number(ban.data_type),  number(ban.layout), ban.author, ban.reason};
  ASSIGN_OR_RETURN(const std::optional<absl::Time> expire_time, ExpireTime(postgres, left));
  ASSIGN_OR_RETURN(postgres::Params params, SignDecision(BanDigest(columns, expire_time), key));
  params.emplace_back(expire_time);
  params.insert(params.end(), columns.begin(), columns.end());
  ASSIGN_OR_RETURN(
      const int64_t made,
      postgres.QueryValue<int64_t>(
          "INSERT INTO bans (digest, public_key, signature, expire_time, candidate, cudnn, gpu, "
          "operation, data_type, layout, author, reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, "
          "$9, $10, $11, $12) RETURNING ban_id",
          params));
  RETURN_IF_ERROR(Announce(postgres, "ban"));
  RETURN_IF_ERROR(transaction.Commit());
  return made;
}

absl::Status EndFleetBan(postgres::Connection& postgres, int64_t fleet_ban,
                         const std::string& author) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  ASSIGN_OR_RETURN(
      const int64_t ended,
      postgres.Change(absl::StrCat("UPDATE bans SET end_time = now(), end_author = $2, end_login = "
                                   "session_user WHERE ban_id = $1 AND ",
                                   kActive),
                      {fleet_ban, author}));
  if (ended == 0) {
    const std::string name = absl::StrCat("fleet ban ", fleet_ban);
    return MissingError({"ban", name}, absl::StrCat("ban: there is no ", name));
  }
  RETURN_IF_ERROR(Announce(postgres, "ban"));
  return transaction.Commit();
}

absl::Status CheckDecisionsHold(postgres::Connection& postgres, const std::string& kind,
                                const std::vector<int64_t>& numbers) {
  ASSIGN_OR_RETURN(
      const postgres::Result ended,
      postgres.Query(
          absl::Substitute("SELECT id, $0_id IS NULL, COALESCE(end_author, '') "
                           "FROM unnest($$1::bigint[]) AS id LEFT JOIN $0s ON $0_id = id "
                           "WHERE $0_id IS NULL OR end_time IS NOT NULL "
                           "OR expire_time <= now() ORDER BY id",
                           kind),
          {numbers}));
  if (ended.empty()) return absl::OkStatus();
  const std::string author = ended[0][2];
  return absl::FailedPreconditionError(absl::StrCat(
      "fleet ", kind, " ", int64_t{ended[0][0]}, " does not hold any more: ",
      ended[0][1]      ? "the fleet's database does not have it; was an earlier one restored?"
      : author.empty() ? "it has expired"
                       : absl::StrCat(author, kind == "ban" ? " deleted it" : " ended it")));
}

absl::StatusOr<std::vector<FleetBan>> ListFleetBans(postgres::Connection& postgres,
                                                    const std::vector<std::string>& trusted) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(
          "SELECT ban_id, candidate, cudnn, gpu, operation, data_type, layout, author, reason, "
          "login, create_time, expire_time, EXTRACT(EPOCH FROM expire_time - now())::float8, "
          "digest, public_key, signature FROM bans WHERE ",
          kActive, " ORDER BY ban_id")));
  std::vector<FleetBan> bans;
  for (const postgres::Row row : rows) bans.push_back(ReadFleetBan(row, trusted));
  return bans;
}

Bans ReadableBans(const std::vector<FleetBan>& bans) {
  std::vector<Bans::Shared> readable;
  for (const FleetBan& one : bans) {
    if (one.error.empty()) readable.push_back(std::make_shared<const Ban>(one.ban));
  }
  return Bans(std::move(readable));
}

Bans HeededBans(const std::vector<FleetBan>& bans) {
  return ReadableBans(bans).With(ShippedBans());
}

absl::Status ForEachUnderBan(postgres::Connection& postgres, const Ban& ban,
                             const std::function<void(const Tuning&, const Pin*)>& visit) {
  const Bans only({std::make_shared<const Ban>(ban)});
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::BeginRead(postgres));
  ASSIGN_OR_RETURN(const std::vector<std::string> fitting,
                   FittingCandidates(postgres, ban.candidate));
  ASSIGN_OR_RETURN(
      const postgres::Result keys,
      postgres.Query("SELECT p.environment_id, p.problem_id, e.text, q.text FROM pooled p JOIN "
                     "environments e USING (environment_id) JOIN problems q USING (problem_id) "
                     "WHERE p.candidates && $1::text[] ORDER BY e.text COLLATE \"C\", q.text "
                     "COLLATE \"C\"",
                     {fitting}));
  std::vector<int64_t> environments, problems;
  for (const postgres::Row key : keys) {
    if (only.Of({key[3], key[2]}).empty()) continue;
    environments.push_back(key[0]);
    problems.push_back(key[1]);
  }
  return postgres.Pages(
      absl::StrCat("SELECT y.payload, e.text, e.gpu_model, i.candidate, i.reason FROM "
                   "unnest($1::integer[], $2::integer[]) WITH ORDINALITY AS w(environment_id, "
                   "problem_id, place) JOIN pooled p USING (environment_id, problem_id) JOIN "
                   "pooled_payloads y USING (digest) JOIN environments e USING (environment_id) "
                   "LEFT JOIN pins i ON i.environment_id = w.environment_id AND i.problem_id = "
                   "w.problem_id AND ",
                   kActive, " ORDER BY w.place"),
      {environments, problems}, kTuningsAtOnce, [&](const postgres::Result& rows) -> absl::Status {
        for (const postgres::Row row : rows) {
          const absl::StatusOr<TuningRecord> stored = ReadPayload(row[0], row[1], row[2]);
          if (!stored.ok()) continue;
          Pin pin;
          if (!row[3].is_null()) {
            ASSIGN_OR_RETURN(pin.candidate, ParseCandidateId(std::string(row[3])));
            pin.key = stored->tuning.key;
            pin.reason = row[4];
          }
          visit(stored->tuning, row[3].is_null() ? nullptr : &pin);
        }
        return absl::OkStatus();
      });
}

}  // namespace convtune::db::fleet
