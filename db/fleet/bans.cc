#include "db/fleet/bans.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/fleet/evidence.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "proto/model/missing.h"

namespace convtune::db::fleet {
namespace {

constexpr size_t kKeysAtOnce = 200;

// Until the commit: two who ban the same at once make one ban.
constexpr char kBanLock[] = "SELECT pg_advisory_xact_lock(hashtextextended('convtune ban', 0))";

FleetBan ReadFleetBan(const postgres::Result& rows, int row) {
  v1::Ban proto;
  proto.set_fleet_ban(rows.Int(row, 0));
  proto.set_candidate(rows.Text(row, 1));
  proto.set_cudnn(rows.Text(row, 2));
  proto.set_gpu(rows.Text(row, 3));
  proto.set_operation(static_cast<v1::Operation>(rows.Int(row, 4)));
  proto.set_data_type(static_cast<v1::DataType>(rows.Int(row, 5)));
  proto.set_layout(static_cast<v1::TensorLayout>(rows.Int(row, 6)));
  proto.set_author(rows.Text(row, 7));
  proto.set_reason(rows.Text(row, 8));
  std::vector<Violation> violations;
  FleetBan one;
  one.ban = BanFromProto(proto, "ban", &violations);
  one.error = ToString(violations);
  one.login = rows.Text(row, 9);
  one.ban.create_time = absl::FromUnixMicros(rows.Int(row, 10));
  if (!rows.IsNull(row, 11)) {
    one.ban.expire_time = absl::FromUnixMicros(rows.Int(row, 11));
    one.left = absl::Seconds(rows.Real(row, 12));
  }
  return one;
}

// Numbers of the candidates that the pattern fits.
absl::StatusOr<std::vector<int64_t>> FittingCandidates(postgres::Connection& postgres,
                                                       const CandidatePattern& pattern) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT candidate_id, text FROM candidates WHERE api = $1",
                                  postgres::Params().Int(static_cast<int64_t>(pattern.api))));
  std::vector<int64_t> ids;
  for (int row = 0; row < rows.rows(); ++row) {
    const absl::StatusOr<CandidateId> candidate = ParseCandidateId(rows.Text(row, 1));
    if (candidate.ok() && pattern.Fits(*candidate)) ids.push_back(rows.Int(row, 0));
  }
  return ids;
}

}  // namespace

absl::StatusOr<int64_t> PutFleetBan(postgres::Connection& postgres, const Ban& ban,
                                    std::optional<absl::Duration> left) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kBanLock));
  ASSIGN_OR_RETURN(const std::vector<FleetBan> known, ListFleetBans(postgres));
  RETURN_IF_ERROR(ReadableBans(known).CheckIsNew(ban, kMostFleetBans));
  const auto number = [](const auto& value) { return value ? static_cast<int64_t>(*value) : 0; };
  postgres::Params params;
  params.Text(ban.candidate.ToText())
      .Text(ban.cudnn.ToText())
      .Text(ban.gpu)
      .Int(number(ban.operation))
      .Int(number(ban.data_type))
      .Int(number(ban.layout))
      .Text(ban.author)
      .Text(ban.reason)
      .MaybeReal(left ? std::optional<double>(absl::ToDoubleSeconds(*left)) : std::nullopt);
  ASSIGN_OR_RETURN(
      const postgres::Result made,
      postgres.Query("INSERT INTO bans (candidate, cudnn, gpu, operation, data_type, layout, "
                     "author, reason, expire_time) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now() + "
                     "$9::float8 * interval '1 second') RETURNING ban_id",
                     params));
  RETURN_IF_ERROR(Announce(postgres, "ban"));
  RETURN_IF_ERROR(transaction.Commit());
  return made.Int(0, 0);
}

absl::Status EndFleetBan(postgres::Connection& postgres, int64_t fleet_ban,
                         const std::string& author) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  ASSIGN_OR_RETURN(
      const postgres::Result ended,
      postgres.Query("UPDATE bans SET end_time = now(), end_author = $2, end_login = session_user "
                     "WHERE ban_id = $1 AND end_time IS NULL AND (expire_time IS NULL OR "
                     "expire_time > now())",
                     postgres::Params().Int(fleet_ban).Text(author)));
  if (ended.changed() == 0) {
    const std::string name = absl::StrCat("fleet ban ", fleet_ban);
    return MissingError({"ban", name}, absl::StrCat("ban: there is no ", name));
  }
  RETURN_IF_ERROR(Announce(postgres, "ban"));
  return transaction.Commit();
}

absl::StatusOr<std::vector<FleetBan>> ListFleetBans(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT ban_id, candidate, cudnn, gpu, operation, data_type, layout, author, "
                     "reason, login, (EXTRACT(EPOCH FROM create_time) * 1000000)::bigint, "
                     "(EXTRACT(EPOCH FROM expire_time) * 1000000)::bigint, "
                     "EXTRACT(EPOCH FROM expire_time - now())::float8 FROM bans WHERE end_time IS "
                     "NULL AND (expire_time IS NULL OR expire_time > now()) ORDER BY ban_id"));
  std::vector<FleetBan> bans;
  for (int row = 0; row < rows.rows(); ++row) bans.push_back(ReadFleetBan(rows, row));
  return bans;
}

Bans ReadableBans(const std::vector<FleetBan>& bans) {
  std::vector<Bans::Shared> readable;
  for (const FleetBan& one : bans) {
    if (one.error.empty()) readable.push_back(std::make_shared<const Ban>(one.ban));
  }
  return Bans(std::move(readable));
}

absl::Status ForEachUnderBan(postgres::Connection& postgres, const Ban& ban,
                             const std::function<void(const Tuning&, const Pin*)>& visit) {
  const Bans only({std::make_shared<const Ban>(ban)});
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::BeginRead(postgres));
  ASSIGN_OR_RETURN(const std::vector<int64_t> fitting, FittingCandidates(postgres, ban.candidate));
  ASSIGN_OR_RETURN(
      const postgres::Result keys,
      postgres.Query(
          absl::StrCat("SELECT p.environment_id, p.problem_id, e.text, q.text FROM (SELECT "
                       "DISTINCT c.environment_id, c.problem_id FROM pooled_candidates c WHERE "
                       "c.candidate_id = ANY($1::integer[]) AND ",
                       UsableSql("c"),
                       ") p JOIN environments e USING (environment_id) JOIN problems q USING "
                       "(problem_id) ORDER BY e.text COLLATE \"C\", q.text COLLATE \"C\""),
          postgres::Params().Ints(fitting)));
  std::vector<int64_t> environments, problems;
  for (int row = 0; row < keys.rows(); ++row) {
    if (!only.Of({keys.Text(row, 3), keys.Text(row, 2)}).empty()) {
      environments.push_back(keys.Int(row, 0));
      problems.push_back(keys.Int(row, 1));
    }
    const bool last = row + 1 == keys.rows();
    if (environments.empty() || (!last && environments.size() < kKeysAtOnce)) continue;
    ASSIGN_OR_RETURN(
        const postgres::Result rows,
        postgres.Query("SELECT y.payload, e.text, e.gpu_model, t.text, i.reason FROM "
                       "unnest($1::integer[], $2::integer[]) WITH ORDINALITY AS w(e, q, place) "
                       "JOIN pooled p ON p.environment_id = w.e AND p.problem_id = w.q "
                       "JOIN pooled_payloads y USING (digest) JOIN environments e USING "
                       "(environment_id) LEFT JOIN pins i ON i.environment_id = w.e AND "
                       "i.problem_id = w.q AND i.end_time IS NULL AND (i.expire_time IS NULL OR "
                       "i.expire_time > now()) LEFT JOIN candidates t ON t.candidate_id = "
                       "i.candidate_id ORDER BY w.place",
                       postgres::Params().Ints(environments).Ints(problems)));
    for (int i = 0; i < rows.rows(); ++i) {
      const std::optional<StoredEvidence> stored =
          ParseEvidence(rows.Bytes(i, 0), rows.Text(i, 1), rows.Text(i, 2));
      if (!stored.has_value()) continue;
      const bool pinned = !rows.IsNull(i, 3);
      Pin pin;
      if (pinned) {
        ASSIGN_OR_RETURN(pin.candidate, ParseCandidateId(rows.Text(i, 3)));
        pin.key = stored->tuning.key;
        pin.reason = rows.Text(i, 4);
      }
      visit(stored->tuning, pinned ? &pin : nullptr);
    }
    environments.clear();
    problems.clear();
  }
  return absl::OkStatus();
}

}  // namespace convtune::db::fleet
