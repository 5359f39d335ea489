#include "db/fleet/releases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::db::fleet {
namespace {

// Until the commit; then the next one sees what this one did.
constexpr char kLock[] = "SELECT pg_advisory_xact_lock(hashtextextended('convtune release', 0))";

// Every choice that is served in the release of that number (which counts even as a
// canary).
std::string ServedIn(const std::string& number) {
  return absl::StrCat(
      "(SELECT DISTINCT ON (c.environment_id, c.problem_id) c.* FROM release_choices c "
      "JOIN releases r USING (release_number) WHERE c.release_number <= ",
      number, " AND (r.state = 1 OR c.release_number = ", number,
      ") ORDER BY c.environment_id, c.problem_id, c.release_number DESC)");
}
std::string Served() { return absl::StrCat("WITH served AS ", ServedIn("$1")); }

// Pooled tunings that differ from $1 for good reason; $2: for any. $3: the least
// evidence.
// "disagreement within noise is no argument": the choice that is served stays
// unless its interval, in what is pooled now, is wholly above the winner's.
std::string Changes() {
  return absl::StrCat(
      Served(),
      ", changes AS (SELECT p.*, CASE WHEN s.digest IS NOT NULL THEN s.winner_id END AS "
      "before_id, s.winner_us AS before_us "
      "FROM pooled p LEFT JOIN served s USING (environment_id, problem_id) "
      "LEFT JOIN pooled_candidates k ON k.environment_id = p.environment_id AND "
      "k.problem_id = p.problem_id AND k.candidate_id = s.winner_id "
      "WHERE p.winner_id IS NOT NULL AND p.evidence >= $3 AND (s.problem_id IS NULL OR "
      // Taken back: the same winner does not return by itself.
      "(s.digest IS NULL AND ($2 OR p.winner_id <> s.winner_id)) OR (s.digest <> p.digest AND "
      "($2 OR p.evidence > s.evidence OR (p.winner_id <> s.winner_id AND "
      "(k.candidate_id IS NULL OR NOT ",
      UsableSql("k"), " OR (p.winner_us IS NOT NULL AND (k.status <> ",
      static_cast<int>(CandidateStatus::kTimed), " OR k.low_us > p.winner_high_us))))))))");
}

// Every choice that all nodes are served.
constexpr char kNow[] =
    "now AS (SELECT DISTINCT ON (c.environment_id, c.problem_id) c.environment_id, c.problem_id, "
    "c.digest FROM release_choices c JOIN releases r USING (release_number) WHERE r.state = 1 "
    "ORDER BY c.environment_id, c.problem_id, c.release_number DESC)";

Release ReadRelease(const postgres::Result& rows, int row, int column) {
  Release release;
  release.number = rows.Int(row, column);
  release.state = static_cast<ReleaseState>(rows.Int(row, column + 1));
  release.canary_permille = static_cast<int>(rows.Int(row, column + 2));
  release.restores = rows.IsNull(row, column + 3) ? 0 : rows.Int(row, column + 3);
  release.author = rows.Text(row, column + 4);
  release.reason = rows.Text(row, column + 5);
  release.create_time = absl::FromUnixMicros(rows.Int(row, column + 6));
  release.end_author = rows.Text(row, column + 7);
  release.end_reason = rows.Text(row, column + 8);
  if (!rows.IsNull(row, column + 9)) {
    release.end_time = absl::FromUnixMicros(rows.Int(row, column + 9));
  }
  return release;
}

// Columns of ReadRelease and change_count.
constexpr char kColumns[] =
    "r.release_number, r.state, r.canary_permille, r.restores, r.author, r.reason, "
    "(EXTRACT(EPOCH FROM r.create_time) * 1000000)::bigint, r.end_author, r.end_reason, "
    "(EXTRACT(EPOCH FROM r.end_time) * 1000000)::bigint, r.change_count, r.login, r.end_login";

// Whose columns begin at 0.
FleetRelease ReadFleetRelease(const postgres::Result& rows, int row) {
  FleetRelease one;
  one.release = ReadRelease(rows, row, 0);
  one.change_count = rows.Int(row, 10);
  one.login = rows.Text(row, 11);
  one.end_login = rows.Text(row, 12);
  return one;
}

absl::StatusOr<FleetRelease> ReadOne(postgres::Connection& postgres, int64_t number) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query(absl::StrCat("SELECT ", kColumns,
                                               " FROM releases r WHERE release_number = $1"),
                                  postgres::Params().Int(number)));
  if (rows.rows() == 0) {
    return absl::NotFoundError(absl::StrCat("release: there is no release ", number));
  }
  return ReadFleetRelease(rows, 0);
}

absl::StatusOr<FleetRelease> Finish(postgres::Connection& postgres, int64_t number,
                                    postgres::Transaction transaction) {
  ASSIGN_OR_RETURN(FleetRelease one, ReadOne(postgres, number));
  RETURN_IF_ERROR(Announce(postgres, "release"));
  RETURN_IF_ERROR(transaction.Commit());
  return one;
}

// Writes a release that ReleaseHistory made.
absl::Status WriteRelease(postgres::Connection& postgres, const Release& release) {
  std::optional<int64_t> end_time;
  if (release.end_time.has_value()) end_time = absl::ToUnixMicros(*release.end_time);
  return postgres.Execute(
      "INSERT INTO releases (release_number, state, canary_permille, restores, change_count, "
      "author, reason, create_time, end_author, end_reason, end_time) VALUES ($1, $2, $3, "
      "NULLIF($4::bigint, 0), 0, $5, $6, to_timestamp($7::float8 / 1000000), $8, $9, "
      "to_timestamp($10::float8 / 1000000)) ON CONFLICT (release_number) DO UPDATE SET "
      "state = EXCLUDED.state, canary_permille = EXCLUDED.canary_permille, "
      "end_author = EXCLUDED.end_author, end_reason = EXCLUDED.end_reason, "
      "end_time = EXCLUDED.end_time, end_login = CASE WHEN EXCLUDED.end_time IS NULL THEN '' "
      "ELSE session_user::text END",
      postgres::Params()
          .Int(release.number)
          .Int(static_cast<int64_t>(release.state))
          .Int(release.canary_permille)
          .Int(release.restores)
          .Text(release.author)
          .Text(release.reason)
          .Int(absl::ToUnixMicros(release.create_time))
          .Text(release.end_author)
          .Text(release.end_reason)
          .MaybeInt(end_time));
}

absl::Status SetChangeCount(postgres::Connection& postgres, int64_t number, int64_t count) {
  return postgres.Execute("UPDATE releases SET change_count = $2 WHERE release_number = $1",
                          postgres::Params().Int(number).Int(count));
}

absl::StatusOr<FleetDiff> ReadDiff(const postgres::Result& rows) {
  FleetDiff diff;
  for (int row = 0; row < rows.rows(); ++row) {
    FleetChange change;
    change.environment_text = rows.Text(row, 0);
    change.problem_text = rows.Text(row, 1);
    change.before = rows.Text(row, 2);
    change.after = rows.Text(row, 3);
    if (!rows.IsNull(row, 4)) change.before_us = rows.Real(row, 4);
    if (!rows.IsNull(row, 5)) change.after_us = rows.Real(row, 5);
    change.node_count = rows.Int(row, 6);
    diff.change_count = rows.Int(row, 7);
    diff.changes.push_back(std::move(change));
  }
  return diff;
}

int64_t NumberOf(const Release* release) { return release != nullptr ? release->number : 0; }

// $1 to $3 of Changes().
postgres::Params ScopeParams(const Release* promoted, const PromotionScope& scope) {
  return postgres::Params()
      .Int(NumberOf(promoted))
      .Bool(scope.all)
      .Int(static_cast<int64_t>(scope.min_evidence));
}

// Changes that the scope leaves out for their evidence alone.
absl::StatusOr<int64_t> CountLesser(postgres::Connection& postgres, const Release* promoted,
                                    const PromotionScope& scope, int64_t taken) {
  PromotionScope any = scope;
  any.min_evidence = Evidence::kHeuristic;
  ASSIGN_OR_RETURN(const postgres::Result all,
                   postgres.Query(absl::StrCat(Changes(), " SELECT COUNT(*) FROM changes"),
                                  ScopeParams(promoted, any)));
  return all.Int(0, 0) - taken;
}

// `where` may leave releases out.
absl::StatusOr<ReleaseHistory> ReadHistory(postgres::Connection& postgres,
                                           const std::string& where) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query(absl::StrCat("SELECT ", kColumns, " FROM releases r ", where,
                                               " ORDER BY r.release_number")));
  std::vector<Release> releases;
  for (int row = 0; row < rows.rows(); ++row) releases.push_back(ReadRelease(rows, row, 0));
  return ReleaseHistory(std::move(releases), ReleaseHistory::kAll);
}

// By the server's clock.
absl::StatusOr<ReleaseDecision> DecideNow(postgres::Connection& postgres, const std::string& author,
                                          const std::string& reason) {
  ASSIGN_OR_RETURN(const postgres::Result now,
                   postgres.Query("SELECT (EXTRACT(EPOCH FROM now()) * 1000000)::bigint"));
  return ReleaseDecision{author, reason, absl::FromUnixMicros(now.Int(0, 0))};
}

}  // namespace

absl::Status Announce(postgres::Connection& postgres, const std::string& what) {
  return postgres.Execute("SELECT pg_notify($1, $2)",
                          postgres::Params().Text(kFleetChannel).Text(what));
}

std::string UsableSql(const std::string& alias) {
  std::vector<int> usable;
  for (int status = 1; status <= static_cast<int>(CandidateStatus::kUnjudged); ++status) {
    Candidate candidate;
    candidate.status = static_cast<CandidateStatus>(status);
    if (candidate.usable()) usable.push_back(status);
  }
  return absl::StrCat("(", alias, ".status IN (", absl::StrJoin(usable, ", "), "))");
}

std::string LesserEvidence(int64_t count, Evidence least) {
  return absl::StrCat(count, " changes whose evidence is less than ", std::string(Name(least)),
                      " (--min-evidence)");
}

absl::StatusOr<ReleaseHistory> ReadServedReleases(postgres::Connection& postgres) {
  return ReadHistory(postgres,
                     "WHERE r.state = 2 OR r.release_number = "
                     "(SELECT MAX(release_number) FROM releases WHERE state = 1)");
}

absl::StatusOr<FleetRelease> PromoteFleetRelease(postgres::Connection& postgres,
                                                 const std::string& author,
                                                 const std::string& reason, int canary_permille,
                                                 const PromotionScope& scope) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kLock));
  ASSIGN_OR_RETURN(const ReleaseHistory history, ReadHistory(postgres, ""));
  ASSIGN_OR_RETURN(const ReleaseDecision decision, DecideNow(postgres, author, reason));
  ASSIGN_OR_RETURN(const Release release,
                   history.Promote(decision, canary_permille, /*has_changes=*/true));
  const int64_t number = release.number;
  RETURN_IF_ERROR(WriteRelease(postgres, release));
  if (history.canary() != nullptr) return Finish(postgres, number, std::move(transaction));
  ASSIGN_OR_RETURN(
      const postgres::Result made,
      postgres.Query(absl::StrCat(Changes(),
                                  " INSERT INTO release_choices (environment_id, problem_id, "
                                  "release_number, winner_id, stock_id, winner_us, stock_us, "
                                  "node_count, evidence, digest) SELECT environment_id, "
                                  "problem_id, $4, winner_id, stock_id, winner_us, stock_us, "
                                  "node_count, evidence, digest FROM changes"),
                     ScopeParams(history.promoted(), scope).Int(number)));
  if (made.changed() == 0) {
    ASSIGN_OR_RETURN(const int64_t lesser, CountLesser(postgres, history.promoted(), scope, 0));
    const absl::Status nothing =
        history.Promote(decision, canary_permille, /*has_changes=*/false).status();
    if (lesser == 0) return nothing;
    return absl::FailedPreconditionError(absl::StrCat("there is nothing to promote but ",
                                                      LesserEvidence(lesser, scope.min_evidence)));
  }
  RETURN_IF_ERROR(SetChangeCount(postgres, number, made.changed()));
  return Finish(postgres, number, std::move(transaction));
}

absl::StatusOr<FleetRelease> WithdrawFleetChoices(postgres::Connection& postgres,
                                                  const std::string& author,
                                                  const std::string& reason,
                                                  const std::string& environment_text,
                                                  const std::vector<std::string>& problems) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kLock));
  ASSIGN_OR_RETURN(const ReleaseHistory history, ReadHistory(postgres, ""));
  if (history.canary() != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "release: roll the canary ", history.canary()->number, " back first, or promote it"));
  }
  ASSIGN_OR_RETURN(const ReleaseDecision decision, DecideNow(postgres, author, reason));
  ASSIGN_OR_RETURN(const Release release, history.Promote(decision, 0, /*has_changes=*/true));
  RETURN_IF_ERROR(WriteRelease(postgres, release));
  ASSIGN_OR_RETURN(
      const postgres::Result made,
      postgres.Query(
          absl::StrCat(Served(),
                       " INSERT INTO release_choices (environment_id, problem_id, "
                       "release_number, winner_id, node_count, evidence) SELECT "
                       "s.environment_id, s.problem_id, $2, s.winner_id, s.node_count, s.evidence "
                       "FROM served s JOIN environments e USING (environment_id) JOIN problems q "
                       "USING (problem_id) WHERE s.digest IS NOT NULL AND e.text = $3 AND "
                       "($4::text[] = '{}' OR q.text = ANY($4::text[]))"),
          postgres::Params()
              .Int(NumberOf(history.promoted()))
              .Int(release.number)
              .Text(environment_text)
              .Texts(problems)));
  const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(problems.size()));
  if (made.changed() < wanted) {
    return absl::NotFoundError(absl::StrCat("problem: the fleet serves ", made.changed(), " of ",
                                            wanted, " in ", environment_text,
                                            "; nothing was withdrawn"));
  }
  RETURN_IF_ERROR(SetChangeCount(postgres, release.number, made.changed()));
  ASSIGN_OR_RETURN(FleetRelease one, Finish(postgres, release.number, std::move(transaction)));
  one.withdrawal = true;
  return one;
}

absl::StatusOr<FleetRollback> RollBackFleetRelease(postgres::Connection& postgres,
                                                   const std::string& author,
                                                   const std::string& reason, int64_t to) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kLock));
  ASSIGN_OR_RETURN(const ReleaseHistory history, ReadHistory(postgres, ""));
  ASSIGN_OR_RETURN(const ReleaseDecision decision, DecideNow(postgres, author, reason));
  const Release* const promoted = history.promoted();
  const bool at_first = to == 0 && history.canary() == nullptr && promoted != nullptr &&
                        history.Before(*promoted) == 0;
  const absl::StatusOr<Release> decided = history.RollBack(decision, to);
  if (!decided.ok() && at_first) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(decided.status().message()),
                                                      "; `release withdraw` takes choices away"));
  }
  ASSIGN_OR_RETURN(const Release release, decided);
  const int64_t number = release.number;
  FleetRollback back;
  RETURN_IF_ERROR(WriteRelease(postgres, release));
  if (history.canary() != nullptr) {
    ASSIGN_OR_RETURN(back.made, Finish(postgres, number, std::move(transaction)));
    return back;
  }
  ASSIGN_OR_RETURN(
      const postgres::Result counts,
      postgres.Query(
          absl::StrCat(Served(), ", ", kNow,
                       " SELECT COUNT(*) FILTER (WHERE s.problem_id IS NULL AND now.digest IS NOT "
                       "NULL), COUNT(*) FILTER (WHERE s.digest IS NOT NULL AND now.digest IS NULL) "
                       "FROM now LEFT JOIN served s USING (environment_id, problem_id)"),
          postgres::Params().Int(release.restores)));
  back.kept_count = counts.Int(0, 0);
  back.returned_count = counts.Int(0, 1);
  ASSIGN_OR_RETURN(
      const postgres::Result made,
      postgres.Query(
          absl::StrCat(Served(), ", ", kNow,
                       " INSERT INTO release_choices (environment_id, problem_id, release_number, "
                       "winner_id, stock_id, winner_us, stock_us, node_count, evidence, digest) "
                       "SELECT s.environment_id, s.problem_id, $2, s.winner_id, s.stock_id, "
                       "s.winner_us, s.stock_us, s.node_count, s.evidence, s.digest FROM served s "
                       "JOIN now USING (environment_id, problem_id) WHERE now.digest IS DISTINCT "
                       "FROM s.digest"),
          postgres::Params().Int(release.restores).Int(number)));
  RETURN_IF_ERROR(SetChangeCount(postgres, number, made.changed()));
  ASSIGN_OR_RETURN(back.made, Finish(postgres, number, std::move(transaction)));
  return back;
}

absl::StatusOr<std::vector<FleetRelease>> ListFleetReleases(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat("SELECT ", kColumns,
                                  ", (SELECT COUNT(*) FROM nodes n WHERE n.release_number = "
                                  "r.release_number), r.restores IS NULL AND "
                                  "COALESCE(w.only, FALSE) FROM releases r LEFT JOIN (SELECT "
                                  "release_number, bool_and(digest IS NULL) AS only FROM "
                                  "release_choices GROUP BY release_number) w "
                                  "USING (release_number) ORDER BY r.release_number DESC")));
  std::vector<FleetRelease> releases;
  for (int row = 0; row < rows.rows(); ++row) {
    FleetRelease one = ReadFleetRelease(rows, row);
    one.node_count = rows.Int(row, 13);
    one.withdrawal = rows.Bool(row, 14);
    releases.push_back(std::move(one));
  }
  return releases;
}

absl::StatusOr<FleetDiff> DiffPooled(postgres::Connection& postgres, const PromotionScope& scope,
                                     int64_t limit) {
  ASSIGN_OR_RETURN(const ReleaseHistory served, ReadServedReleases(postgres));
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Changes(),
                                  " SELECT e.text, q.text, COALESCE(b.text, ''), "
                                  "COALESCE(a.text, ''), c.before_us, c.winner_us, c.node_count, "
                                  "COUNT(*) OVER () FROM changes c "
                                  "JOIN environments e USING (environment_id) "
                                  "JOIN problems q USING (problem_id) "
                                  "LEFT JOIN candidates b ON b.candidate_id = c.before_id "
                                  "LEFT JOIN candidates a ON a.candidate_id = c.winner_id "
                                  "ORDER BY e.text, q.text LIMIT $4"),
                     ScopeParams(served.promoted(), scope).Int(limit)));
  ASSIGN_OR_RETURN(FleetDiff diff, ReadDiff(rows));
  ASSIGN_OR_RETURN(diff.lesser_count,
                   CountLesser(postgres, served.promoted(), scope, diff.change_count));
  return diff;
}

absl::StatusOr<FleetDiff> DiffFleetReleases(postgres::Connection& postgres, int64_t from,
                                            int64_t to, int64_t limit) {
  for (const int64_t number : {from, to}) {
    if (number != 0) RETURN_IF_ERROR(ReadOne(postgres, number).status());
  }
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Served(), ", later AS ", ServedIn("$2"),
                                  " SELECT e.text, q.text, COALESCE(b.text, ''), "
                                  "COALESCE(a.text, ''), s.winner_us, l.winner_us, "
                                  "COALESCE(l.node_count, 0), COUNT(*) OVER () FROM served s "
                                  "FULL JOIN later l USING (environment_id, problem_id) "
                                  "JOIN environments e USING (environment_id) "
                                  "JOIN problems q USING (problem_id) "
                                  "LEFT JOIN candidates b ON b.candidate_id = s.winner_id AND "
                                  "s.digest IS NOT NULL "
                                  "LEFT JOIN candidates a ON a.candidate_id = l.winner_id AND "
                                  "l.digest IS NOT NULL "
                                  "WHERE s.digest IS DISTINCT FROM l.digest "
                                  "ORDER BY e.text, q.text LIMIT $3"),
                     postgres::Params().Int(from).Int(to).Int(limit)));
  return ReadDiff(rows);
}

absl::StatusOr<absl::Time> ReadReleaseTime(postgres::Connection& postgres, int64_t release) {
  const absl::StatusOr<FleetRelease> one = ReadOne(postgres, release);
  if (absl::IsNotFound(one.status())) return absl::InfinitePast();
  RETURN_IF_ERROR(one.status());
  return one->release.create_time;
}

absl::StatusOr<std::set<std::string>> ReadReleaseProblems(postgres::Connection& postgres,
                                                          int64_t environment_id, int64_t release) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Served(),
                                  " SELECT q.text FROM served s JOIN problems q USING (problem_id) "
                                  "WHERE s.environment_id = $2 AND s.digest IS NOT NULL"),
                     postgres::Params().Int(release).Int(environment_id)));
  std::set<std::string> problems;
  for (int row = 0; row < rows.rows(); ++row) problems.insert(rows.Text(row, 0));
  return problems;
}

absl::Status ReadReleaseChanges(
    postgres::Connection& postgres, FleetNames& names, const std::vector<int64_t>& environments,
    int64_t from, int64_t to, int64_t page_size,
    const std::function<absl::Status(std::vector<ReleasedTuning>)>& page) {
  // One state of the database for all pages.
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::BeginRead(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  // Keys that any release between the two has, the first included: it may have
  // been withdrawn.
  ASSIGN_OR_RETURN(
      const postgres::Result keys,
      postgres.Query("SELECT DISTINCT environment_id, problem_id FROM release_choices WHERE "
                     "release_number BETWEEN LEAST($1::bigint, $2::bigint) AND "
                     "GREATEST($1::bigint, $2::bigint) AND "
                     "environment_id = ANY($3::integer[]) ORDER BY environment_id, problem_id",
                     postgres::Params().Int(from).Int(to).Ints(environments)));
  for (int begin = 0; begin < keys.rows(); begin += static_cast<int>(page_size)) {
    std::vector<int64_t> of_environment, of_problem;
    for (int row = begin; row < keys.rows() && row < begin + page_size; ++row) {
      of_environment.push_back(keys.Int(row, 0));
      of_problem.push_back(keys.Int(row, 1));
    }
    ASSIGN_OR_RETURN(
        const postgres::Result rows,
        postgres.Query("SELECT k.environment_id, q.text, p.payload FROM unnest($1::integer[], "
                       "$2::integer[]) AS k(environment_id, problem_id) CROSS JOIN LATERAL "
                       "(SELECT c.digest FROM release_choices c JOIN releases r USING "
                       "(release_number) WHERE c.environment_id = k.environment_id AND "
                       "c.problem_id = k.problem_id AND c.release_number <= $3 AND (r.state = 1 "
                       "OR c.release_number = $3) ORDER BY c.release_number DESC LIMIT 1) s "
                       "JOIN problems q ON q.problem_id = k.problem_id "
                       "LEFT JOIN pooled_payloads p USING (digest)",
                       postgres::Params().Ints(of_environment).Ints(of_problem).Int(to)));
    std::vector<ReleasedTuning> tunings;
    for (int row = 0; row < rows.rows(); ++row) {
      tunings.push_back(
          {rows.Int(row, 0), rows.Text(row, 1), rows.IsNull(row, 2) ? "" : rows.Bytes(row, 2)});
    }
    RETURN_IF_ERROR(page(std::move(tunings)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ReleasedTuning>> ReadReleaseChoices(
    postgres::Connection& postgres, int64_t environment_id,
    const std::vector<std::string>& problems, int64_t release) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT k.text, p.payload FROM problems k CROSS JOIN LATERAL "
                     "(SELECT c.digest FROM release_choices c JOIN releases r USING "
                     "(release_number) WHERE c.environment_id = $1 AND "
                     "c.problem_id = k.problem_id AND c.release_number <= $3 AND (r.state = 1 "
                     "OR c.release_number = $3) ORDER BY c.release_number DESC LIMIT 1) s "
                     "JOIN pooled_payloads p USING (digest) WHERE k.text = ANY($2::text[])",
                     postgres::Params().Int(environment_id).Texts(problems).Int(release)));
  std::vector<ReleasedTuning> tunings;
  for (int row = 0; row < rows.rows(); ++row) {
    tunings.push_back({environment_id, rows.Text(row, 0), rows.Bytes(row, 1)});
  }
  return tunings;
}

}  // namespace convtune::db::fleet
