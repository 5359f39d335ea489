// The part of releases.h that reads what releases hold, and checks it.
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_signature.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// Bytes of a tuning's digest in the database.
constexpr size_t kPayloadDigest = 16;

// What a release holds.
struct Content {
  std::string digest;                // of `choices`
  std::string error;                 // what CheckDecision returns
  std::vector<std::string> choices;  // ChoiceDigest of each
};

std::string ChoiceDigest(int64_t release, const std::string& environment_text,
                         const std::string& problem_text, const std::string& digest) {
  return bundle::DigestOfTexts({absl::StrCat(release), environment_text, problem_text, digest});
}

absl::StatusOr<Content> ReadContent(postgres::Connection& postgres, int64_t release,
                                    const std::vector<std::string>& trusted) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT state, canary_permille, array_to_string(canary_nodes, E'\\n'), "
                     "COALESCE(restores, 0), author, reason, end_author, end_reason, digest, "
                     "public_key, signature FROM releases WHERE release_number = $1",
                     {release}));
  if (rows.empty()) {
    return absl::NotFoundError(absl::StrCat("release: there is no release ", release));
  }
  std::vector<std::string> texts = {"convtune fleet release 1", absl::StrCat(release)};
  for (int column = 0; column < 8; ++column) texts.push_back(rows[0][column]);
  Content content;
  ASSIGN_OR_RETURN(
      const postgres::Result choices,
      postgres.Query("SELECT e.text, q.text, COALESCE(encode(c.digest, 'hex'), '') FROM "
                     "release_choices c JOIN environments e USING (environment_id) JOIN problems q "
                     "USING (problem_id) WHERE c.release_number = $1 ORDER BY e.text COLLATE "
                     "\"C\", q.text COLLATE \"C\"",
                     {release}));
  for (const postgres::Row row : choices) {
    content.choices.push_back(ChoiceDigest(release, row[0], row[1], row[2]));
    for (int column = 0; column < 3; ++column) texts.push_back(row[column]);
  }
  content.digest = bundle::DigestOfTexts(texts);
  content.error = CheckDecision(content.digest, rows[0], 8, trusted);
  return content;
}

// Rows for CheckedReleases::Take: what release $3 has of these keys (environment_id and
// problem_id).
std::string ChoicesSql(const std::string& keys) {
  return absl::StrCat(
      "SELECT e.text, q.text, s.release_number::text, s.digest, p.payload FROM (", keys,
      ") k LEFT JOIN LATERAL (SELECT c.release_number, c.digest FROM "
      "release_choices c JOIN releases r USING (release_number) WHERE c.environment_id = "
      "k.environment_id AND c.problem_id = k.problem_id AND c.release_number <= $3 AND (r.state = "
      "1 OR c.release_number = $3) ORDER BY c.release_number DESC LIMIT 1) s ON true JOIN "
      "environments e USING (environment_id) JOIN problems q USING (problem_id) LEFT JOIN "
      "pooled_payloads p USING (digest)");
}

bool HasDigest(const std::string& payload, const std::string& digest) {
  bundle::Sha256 sha256;
  sha256.Update(payload);
  return sha256.Digest().substr(0, kPayloadDigest) == digest;
}

}  // namespace

absl::StatusOr<postgres::Params> SignDecision(const std::string& digest, const DecisionKey& key) {
  v1::BundleTrailer decided;
  decided.set_sha256(digest);
  if (key != nullptr) RETURN_IF_ERROR(key->Sign(&decided));
  return postgres::Params{postgres::Bytes{decided.sha256()}, postgres::Bytes{decided.public_key()},
                          postgres::Bytes{decided.signature()}};
}

std::string CheckDecision(const std::string& digest, const postgres::Row& row, int column,
                          const std::vector<std::string>& trusted) {
  v1::BundleTrailer decided;
  decided.set_sha256(std::string(row[column]));
  if (decided.sha256() != digest) return kWrongDigest;
  decided.set_public_key(std::string(row[column + 1]));
  decided.set_signature(std::string(row[column + 2]));
  return std::string(bundle::CheckBundleSignature(decided, trusted, "signature").message());
}

std::string DigestTime(std::optional<absl::Time> time) {
  return time.has_value() ? absl::StrCat(absl::ToUnixMicros(*time)) : "";
}

absl::StatusOr<std::optional<absl::Time>> ExpireTime(postgres::Connection& postgres,
                                                     std::optional<absl::Duration> left) {
  if (!left.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const absl::Time now, postgres.QueryValue<absl::Time>("SELECT now()"));
  // PostgreSQL keeps microseconds.
  return absl::FromUnixMicros(absl::ToUnixMicros(now + *left));
}

absl::Status CheckedReleases::Check(postgres::Connection& postgres, int64_t release) {
  ASSIGN_OR_RETURN(const Content content, ReadContent(postgres, release, trusted_));
  if (!content.error.empty()) {
    return absl::DataLossError(absl::StrCat("release ", release, ": ", content.error));
  }
  choices_.insert(content.choices.begin(), content.choices.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ReleasedTuning>> CheckedReleases::Take(postgres::Connection& postgres,
                                                                  const postgres::Result& rows) {
  std::vector<ReleasedTuning> tunings;
  for (const postgres::Row row : rows) {
    ReleasedTuning tuning{row[0], row[1], row[4]};
    if (const int64_t release = row[2]; release != 0) {
      const std::string digest = row[3];
      const std::string choice = ChoiceDigest(release, tuning.environment_text, tuning.problem_text,
                                              absl::BytesToHexString(digest));
      if (!choices_.contains(choice)) RETURN_IF_ERROR(Check(postgres, release));
      // The release matches its digest, and this row is not among its choices: a text of the row
      // was changed between two statements.
      if (!choices_.contains(choice)) {
        return absl::DataLossError(absl::StrCat("release ", release, ": ", kWrongDigest));
      }
      if (!digest.empty() && !HasDigest(tuning.payload, digest)) {
        return absl::DataLossError(absl::StrCat("release ", release, ": the tuning of ",
                                                tuning.problem_text, " in ",
                                                tuning.environment_text, ": ", kWrongDigest));
      }
    }
    tunings.push_back(std::move(tuning));
  }
  return tunings;
}

absl::Status WriteReleaseDigest(postgres::Connection& postgres, int64_t release,
                                const DecisionKey& key) {
  ASSIGN_OR_RETURN(const Content content, ReadContent(postgres, release, {}));
  ASSIGN_OR_RETURN(postgres::Params params, SignDecision(content.digest, key));
  params.emplace_back(release);
  return postgres.Execute(
      "UPDATE releases SET digest = $1, public_key = $2, signature = $3 WHERE release_number = $4",
      params);
}

absl::Status ReadReleaseChanges(
    postgres::Connection& postgres, FleetNames& names, CheckedReleases& checked,
    const std::vector<std::string>& environments, int64_t from, int64_t to, int page_size,
    const std::function<absl::Status(std::vector<ReleasedTuning>)>& page) {
  // One state of the database for all pages.
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::BeginRead(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  // A node that is to serve nothing follows the end of its canary, `from`: that is in its digest.
  RETURN_IF_ERROR(checked.Check(postgres, to != 0 ? to : from));
  // Keys that any release from one to the other has, both included: the node may have been served
  // a choice of each. A key that only a canary had which was rolled back has no choice in `to`.
  const std::string sql = ChoicesSql(
      "SELECT DISTINCT environment_id, problem_id FROM release_choices JOIN environments "
      "USING (environment_id) WHERE text = ANY($1::text[]) AND release_number BETWEEN "
      "LEAST($2::bigint, $3::bigint) AND GREATEST($2::bigint, $3::bigint)");
  // The first reading checks every page and the second one gives them, so that a caller never has
  // the sound half of a release that is refused.
  for (const bool give : {false, true}) {
    RETURN_IF_ERROR(postgres.Pages(sql, {environments, from, to}, page_size,
                                   [&](const postgres::Result& rows) -> absl::Status {
                                     ASSIGN_OR_RETURN(std::vector<ReleasedTuning> tunings,
                                                      checked.Take(postgres, rows));
                                     return give ? page(std::move(tunings)) : absl::OkStatus();
                                   }));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ReleasedTuning>> ReadReleaseChoices(
    postgres::Connection& postgres, CheckedReleases& checked, const std::string& environment_text,
    const std::vector<std::string>& problems, int64_t release) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(ChoicesSql("SELECT environment_id, problem_id FROM environments "
                                             "v, problems q WHERE v.text = $1 AND q.text = "
                                             "ANY($2::text[])"),
                                  " WHERE s.digest IS NOT NULL"),
                     {environment_text, problems, release}));
  return checked.Take(postgres, rows);
}

}  // namespace convtune::db::fleet
