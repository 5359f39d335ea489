#include "db/fleet/releases.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/fleet/nodes.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

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

// The relation `changes`: pooled tunings that differ from the choices of release $1 for good
// reason, or where $2 is true for any. `lesser`: the evidence is less than $3. `held`: of the rest,
// that fewer nodes agree with than `wanted`, which is $4, or where that is 0 what the environment
// wants. Differences within noise are no reason: the choice that is served stays unless its
// interval, in what is pooled now, is wholly above the winner's.
std::string Changes() {
  return absl::StrCat(
      Served(), ", ", kNodesWantedSql,
      ", changes AS (SELECT p.environment_id, p.problem_id, p.winner, p.winner_us, p.agreeing AS "
      "node_count, p.evidence, p.digest, CASE WHEN s.digest IS NOT NULL THEN s.winner END AS "
      "before, s.winner_us AS before_us, p.evidence < $3 AS lesser, p.evidence >= $3 AND "
      "p.agreeing < w.wanted AS held, w.wanted FROM pooled p LEFT JOIN served s USING "
      "(environment_id, problem_id) LEFT JOIN wanting USING (environment_id) CROSS JOIN LATERAL "
      "(SELECT CASE WHEN $4 > 0 THEN $4 ELSE COALESCE(wanting.nodes, 1) END AS wanted) w CROSS "
      "JOIN LATERAL (SELECT array_position(p.candidates, s.winner) AS place) k "
      "WHERE p.winner IS NOT NULL AND (s.problem_id IS NULL OR "
      // Taken back: the same winner does not return by itself.
      "(s.digest IS NULL AND ($2 OR p.winner <> s.winner)) OR (s.digest <> p.digest AND "
      "($2 OR p.evidence > s.evidence OR (p.winner <> s.winner AND "
      "(k.place IS NULL OR p.lows_us[k.place] > p.winner_high_us))))))");
}

// What a release takes over of a choice, from `pooled` or from an earlier release.
constexpr char kChoice[] =
    "environment_id, problem_id, winner, winner_us, node_count, evidence, digest";

// Columns of ReadRelease.
std::string Columns() {
  return absl::StrCat(
      "r.release_number, r.state, r.canary_permille, r.restores, r.author, r.reason, "
      "r.create_time, r.end_author, r.end_reason, r.end_time, r.change_count, r.login, "
      "r.end_login, array_to_string(r.canary_nodes, E'\\n'), CASE WHEN r.state = 2 THEN "
      "array_to_string(ARRAY(SELECT n.name FROM nodes n WHERE n.name = ANY(r.canary_nodes) AND "
      "n.forget_time IS NULL AND NOT ",
      kLiving, " ORDER BY 1), E'\\n') END");
}

FleetRelease ReadRelease(const postgres::Row& row) {
  FleetRelease one;
  one.release.number = row[0];
  one.release.state = row[1];
  one.release.canary_permille = row[2];
  one.release.restores = row[3];
  one.release.author = row[4];
  one.release.reason = row[5];
  one.release.create_time = row[6];
  one.release.end_author = row[7];
  one.release.end_reason = row[8];
  one.release.end_time = row[9].Maybe<absl::Time>();
  one.change_count = row[10];
  one.login = row[11];
  one.end_login = row[12];
  one.canary_nodes = SplitNames(row[13]);
  one.silent_canary_nodes = SplitNames(row[14]);
  return one;
}

int64_t NumberOf(const Release* release) { return release != nullptr ? release->number : 0; }

// A Deciding is a transaction that decides on a release.
struct Deciding {
  postgres::Transaction transaction;
  ReleaseHistory history;    // before
  ReleaseDecision decision;  // by the server's clock
  DecisionKey key;
};

absl::StatusOr<FleetRelease> Finish(postgres::Connection& postgres, int64_t number,
                                    Deciding& deciding) {
  RETURN_IF_ERROR(
      postgres.Execute("UPDATE releases SET change_count = (SELECT COUNT(*) FROM release_choices "
                       "WHERE release_number = $1) WHERE release_number = $1",
                       {number}));
  ASSIGN_OR_RETURN(FleetRelease one, ReadFleetRelease(postgres, number));
  ASSIGN_OR_RETURN(const bool is_signed,
                   postgres.QueryValue<bool>("SELECT COALESCE(length(signature), 0) > 0 FROM "
                                             "releases WHERE release_number = $1",
                                             {number}));
  if (is_signed && deciding.key == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("--sign: is required, since release ", number, " is signed"));
  }
  RETURN_IF_ERROR(WriteReleaseDigest(postgres, number, deciding.key));
  RETURN_IF_ERROR(Announce(postgres, "release"));
  RETURN_IF_ERROR(deciding.transaction.Commit());
  return one;
}

// Writes a release that ReleaseHistory made.
absl::Status WriteRelease(postgres::Connection& postgres, const Release& release) {
  return postgres.Execute(
      "INSERT INTO releases (release_number, state, canary_permille, restores, change_count, "
      "author, reason, create_time, end_author, end_reason, end_time) VALUES ($1, $2, $3, "
      "NULLIF($4::bigint, 0), 0, $5, $6, $7, $8, $9, $10) ON CONFLICT (release_number) DO UPDATE "
      "SET state = EXCLUDED.state, canary_permille = EXCLUDED.canary_permille, "
      "end_author = EXCLUDED.end_author, end_reason = EXCLUDED.end_reason, "
      "end_time = EXCLUDED.end_time, end_login = CASE WHEN EXCLUDED.end_time IS NULL THEN '' "
      "ELSE session_user::text END",
      {release.number, release.state, release.canary_permille, release.restores, release.author,
       release.reason, release.create_time, release.end_author, release.end_reason,
       release.end_time});
}

// Draws the nodes of the canary, as PromoteFleetRelease says, and returns how many silent nodes
// were left out. The order is one of a canary and node, so that a greater share keeps those of a
// smaller.
absl::StatusOr<int64_t> DrawCanary(postgres::Connection& postgres, const Release& canary) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat(
              "SELECT text, name, living, all_living, living AND (row_number() OVER (PARTITION BY "
              "text, living ORDER BY place) - 1) * 1000 < all_living * $2::bigint FROM (SELECT *, "
              "COUNT(*) FILTER (WHERE living) OVER (PARTITION BY text) AS all_living FROM (SELECT "
              "DISTINCT e.text, n.name, sha256(convert_to($1 || E'\\n' || n.name, 'UTF8')) AS "
              "place, ",
              kLiving,
              " AS living FROM release_choices c JOIN environments e USING (environment_id) JOIN "
              "node_devices d USING (environment_id) JOIN nodes n USING (node_id) WHERE "
              "c.release_number = $1::text::bigint AND d.current) a) b ORDER BY text"),
          {absl::StrCat(canary.number), canary.canary_permille}));
  std::set<std::string> silent, drawn;
  for (const postgres::Row row : rows) {
    if (int64_t{row[3]} == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("--canary: every node of ", std::string(row[0]),
                       ", which the release changes, is silent, so nobody would try it there"));
    }
    if (!row[2]) silent.insert(row[1]);
    if (row[4]) drawn.insert(row[1]);
  }
  if (drawn.empty()) {
    return absl::FailedPreconditionError(
        "--canary: no node has an environment that the release changes, so nobody would try it");
  }
  RETURN_IF_ERROR(
      postgres.Execute("UPDATE releases SET canary_nodes = $2 WHERE release_number = $1",
                       {canary.number, std::vector<std::string>(drawn.begin(), drawn.end())}));
  return static_cast<int64_t>(silent.size());
}

FleetDiff ReadDiff(const postgres::Result& rows) {
  FleetDiff diff;
  for (const postgres::Row row : rows) {
    diff.changes.push_back({row[0], row[1], row[2], row[3], row[4].Maybe<double>(),
                            row[5].Maybe<double>(), row[6], row[8]});
    diff.change_count = row[7];
  }
  return diff;
}

// $1 to $4 of Changes().
postgres::Params ScopeParams(const Release* promoted, const PromotionScope& scope) {
  return {NumberOf(promoted), scope.all, scope.min_evidence, scope.min_nodes};
}

absl::Status CountChanges(postgres::Connection& postgres, const Release* promoted,
                          const PromotionScope& scope, FleetDiff* diff) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Changes(),
                                  " SELECT COUNT(*) FILTER (WHERE NOT lesser AND NOT held), "
                                  "COUNT(*) FILTER (WHERE lesser), COUNT(*) FILTER (WHERE held) "
                                  "FROM changes"),
                     ScopeParams(promoted, scope)));
  diff->change_count = rows[0][0];
  diff->lesser_count = rows[0][1];
  diff->held_count = rows[0][2];
  return absl::OkStatus();
}

// `where` may leave releases out.
absl::StatusOr<ReleaseHistory> ReadHistory(postgres::Connection& postgres,
                                           const std::string& where) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query(absl::StrCat("SELECT ", Columns(), " FROM releases r ", where,
                                               " ORDER BY r.release_number")));
  std::vector<Release> releases;
  for (const postgres::Row row : rows) releases.push_back(ReadRelease(row).release);
  return ReleaseHistory(std::move(releases), ReleaseHistory::kAll);
}

// Writes the choices of a new release. FAILED_PRECONDITION: there are none.
absl::Status WriteChanges(postgres::Connection& postgres, const Deciding& deciding,
                          const Release& release, const PromotionScope& scope) {
  const Release* const promoted = deciding.history.promoted();
  postgres::Params params = ScopeParams(promoted, scope);
  params.push_back(release.number);
  ASSIGN_OR_RETURN(const int64_t made,
                   postgres.Change(absl::StrCat(Changes(), " INSERT INTO release_choices (",
                                                kChoice, ", release_number) SELECT ", kChoice,
                                                ", $5 FROM changes WHERE NOT lesser AND NOT held"),
                                   params));
  if (made > 0) return absl::OkStatus();
  FleetDiff left;
  RETURN_IF_ERROR(CountChanges(postgres, promoted, scope, &left));
  const std::string why = LeftOut(left, scope);
  if (why.empty()) {
    return deciding.history.Promote(deciding.decision, 0, /*has_changes=*/false).status();
  }
  return absl::FailedPreconditionError(absl::StrCat("there is nothing to promote but ", why));
}

// Whoever decides has looked at a release, and another may have been decided since.
absl::Status CheckFrom(const ReleaseHistory& history, std::optional<SeenRelease> from) {
  const int64_t now = NewestServed(history);
  const bool canary = history.canary() != nullptr;
  if (!from.has_value() || (from->number == now && from->is_canary.value_or(canary) == canary)) {
    return absl::OkStatus();
  }
  const Release* const newest = canary ? history.canary() : history.promoted();
  return absl::FailedPreconditionError(
      absl::StrCat("--from: must be the release that the fleet serves, ", now,
                   newest == nullptr ? "" : absl::StrCat(" by ", newest->author), ", is ",
                   from->is_canary.value_or(false) ? "canary " : "", from->number,
                   ": somebody decided since; see `release list`"));
}

absl::StatusOr<Deciding> Begin(postgres::Connection& postgres, const FleetDecision& decision,
                               std::optional<SeenRelease> from = std::nullopt) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kReleaseLock));
  ASSIGN_OR_RETURN(ReleaseHistory history, ReadHistory(postgres, ""));
  RETURN_IF_ERROR(CheckFrom(history, from));
  ASSIGN_OR_RETURN(const absl::Time now, postgres.QueryValue<absl::Time>("SELECT now()"));
  return Deciding{std::move(transaction),
                  std::move(history),
                  {decision.author, decision.reason, now},
                  decision.key};
}

}  // namespace

absl::Status Announce(postgres::Connection& postgres, const std::string& what) {
  return postgres.Execute("SELECT pg_notify($1, $2)", {kFleetChannel, what});
}

std::string LeftOut(const FleetDiff& diff, const PromotionScope& scope) {
  std::string text;
  if (diff.lesser_count > 0) {
    absl::StrAppend(&text, diff.lesser_count, " changes whose evidence is less than ",
                    std::string(Name(scope.min_evidence)), " (--min-evidence)");
  }
  if (diff.held_count > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", and ", diff.held_count,
                    " changes that too few nodes agree with (--min-nodes)");
  }
  return text;
}

absl::StatusOr<FleetRelease> ReadFleetRelease(postgres::Connection& postgres, int64_t number) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query(absl::StrCat("SELECT ", Columns(),
                                               " FROM releases r WHERE release_number = $1"),
                                  {number}));
  if (rows.empty()) {
    return absl::NotFoundError(absl::StrCat("release: there is no release ", number));
  }
  return ReadRelease(rows[0]);
}

int64_t NewestServed(const ReleaseHistory& served) {
  return NumberOf(served.canary() != nullptr ? served.canary() : served.promoted());
}

absl::StatusOr<ReleaseHistory> ReadServedReleases(postgres::Connection& postgres) {
  return ReadHistory(postgres,
                     "WHERE r.state = 2 OR r.release_number = "
                     "(SELECT MAX(release_number) FROM releases WHERE state = 1)");
}

absl::Status CheckServed(postgres::Connection& postgres, int64_t newest, bool also_empty) {
  ASSIGN_OR_RETURN(const postgres::Result numbers,
                   postgres.Query(absl::StrCat("SELECT release_number FROM ", ServedIn("$1"),
                                               " s UNION SELECT release_number FROM releases WHERE "
                                               "$2 AND release_number = $1 ORDER BY 1"),
                                  {newest, also_empty}));
  CheckedReleases checked;
  std::string damage;
  for (const int64_t number : numbers.Column<int64_t>()) {
    absl::Status status = checked.Check(postgres, number);
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    if (!status.ok()) absl::StrAppend(&damage, std::string(status.message()), "; ");
  }
  if (damage.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      damage,
      "restore its rows; or `release rollback` a canary, else `release withdraw --every-problem` "
      "in each environment that is served, then `release promote --all`"));
}

absl::StatusOr<FleetRelease> PromoteFleetRelease(postgres::Connection& postgres,
                                                 const FleetDecision& decision, int canary_permille,
                                                 const PromotionScope& scope,
                                                 std::optional<SeenRelease> from) {
  ASSIGN_OR_RETURN(Deciding deciding, Begin(postgres, decision, from));
  const bool ran = deciding.history.canary() != nullptr;
  ASSIGN_OR_RETURN(
      const Release release,
      deciding.history.Promote(deciding.decision, canary_permille, /*has_changes=*/true));
  // The digest that a canary gets now vouches for all that it holds. A new release stands on the
  // releases that served choices come from, and on no others.
  RETURN_IF_ERROR(CheckServed(postgres, NewestServed(deciding.history), /*also_empty=*/ran));
  RETURN_IF_ERROR(WriteRelease(postgres, release));
  if (!ran) RETURN_IF_ERROR(WriteChanges(postgres, deciding, release, scope));
  int64_t silent = 0;
  if (release.state == ReleaseState::kCanary) {
    ASSIGN_OR_RETURN(silent, DrawCanary(postgres, release));
  }
  ASSIGN_OR_RETURN(FleetRelease one, Finish(postgres, release.number, deciding));
  one.silent_count = silent;
  return one;
}

absl::StatusOr<FleetRelease> WithdrawFleetChoices(postgres::Connection& postgres,
                                                  const FleetDecision& decision,
                                                  const std::string& environment_text,
                                                  const std::vector<std::string>& problems) {
  ASSIGN_OR_RETURN(Deciding deciding, Begin(postgres, decision));
  if (const Release* const canary = deciding.history.canary()) {
    return absl::FailedPreconditionError(
        absl::StrCat("release: roll the canary ", canary->number, " back first, or promote it"));
  }
  ASSIGN_OR_RETURN(const Release release,
                   deciding.history.Promote(deciding.decision, 0, /*has_changes=*/true));
  RETURN_IF_ERROR(WriteRelease(postgres, release));
  ASSIGN_OR_RETURN(
      const int64_t made,
      postgres.Change(
          absl::StrCat(Served(),
                       " INSERT INTO release_choices (environment_id, problem_id, "
                       "release_number, winner, node_count, evidence) SELECT "
                       "s.environment_id, s.problem_id, $2, s.winner, s.node_count, s.evidence "
                       "FROM served s JOIN environments e USING (environment_id) JOIN problems q "
                       "USING (problem_id) WHERE s.digest IS NOT NULL AND e.text = $3 AND "
                       "($4::text[] = '{}' OR q.text = ANY($4::text[]))"),
          {NumberOf(deciding.history.promoted()), release.number, environment_text, problems}));
  const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(problems.size()));
  if (made < wanted) {
    return absl::NotFoundError(absl::StrCat("problem: the fleet serves ", made, " of ", wanted,
                                            " in ", environment_text, "; nothing was withdrawn"));
  }
  ASSIGN_OR_RETURN(FleetRelease one, Finish(postgres, release.number, deciding));
  one.withdrawal = true;
  return one;
}

absl::StatusOr<FleetRelease> RollBackFleetRelease(postgres::Connection& postgres,
                                                  const FleetDecision& decision, int64_t to,
                                                  std::optional<SeenRelease> from) {
  ASSIGN_OR_RETURN(Deciding deciding, Begin(postgres, decision, from));
  const ReleaseHistory& history = deciding.history;
  const Release* const promoted = history.promoted();
  const bool at_first = to == 0 && history.canary() == nullptr && promoted != nullptr &&
                        history.Before(*promoted) == 0;
  const absl::StatusOr<Release> decided = history.RollBack(deciding.decision, to);
  if (!decided.ok() && at_first) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(decided.status().message()),
                                                      "; `release withdraw` takes choices away"));
  }
  ASSIGN_OR_RETURN(const Release release, decided);
  RETURN_IF_ERROR(WriteRelease(postgres, release));
  if (history.canary() != nullptr) return Finish(postgres, release.number, deciding);
  // The new release's digest vouches for the choices that come from there.
  RETURN_IF_ERROR(CheckServed(postgres, release.restores));
  const std::string both = absl::StrCat(Served(), ", now AS ", ServedIn("$2"));
  ASSIGN_OR_RETURN(
      const postgres::Result counts,
      postgres.Query(
          absl::StrCat(both,
                       " SELECT COUNT(*) FILTER (WHERE s.problem_id IS NULL AND now.digest IS NOT "
                       "NULL), COUNT(*) FILTER (WHERE s.digest IS NOT NULL AND now.digest IS NULL) "
                       "FROM now LEFT JOIN served s USING (environment_id, problem_id)"),
          {release.restores, promoted->number}));
  RETURN_IF_ERROR(
      postgres.Execute(absl::StrCat(both, " INSERT INTO release_choices (", kChoice,
                                    ", release_number) SELECT ", kChoice,
                                    ", $3 FROM (SELECT s.*, now.digest AS now FROM served s JOIN "
                                    "now USING (environment_id, problem_id)) s WHERE now IS "
                                    "DISTINCT FROM digest"),
                       {release.restores, promoted->number, release.number}));
  ASSIGN_OR_RETURN(FleetRelease one, Finish(postgres, release.number, deciding));
  one.kept_count = counts[0][0];
  one.returned_count = counts[0][1];
  return one;
}

absl::StatusOr<std::vector<FleetRelease>> ListFleetReleases(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query(absl::StrCat(
                       "SELECT ", Columns(),
                       ", (SELECT COUNT(*) FROM nodes n WHERE n.release_number = "
                       "r.release_number AND n.forget_time IS NULL), r.restores IS NULL AND "
                       "COALESCE(w.only, FALSE) FROM releases r LEFT JOIN (SELECT "
                       "release_number, bool_and(digest IS NULL) AS only FROM "
                       "release_choices GROUP BY release_number) w "
                       "USING (release_number) ORDER BY r.release_number DESC")));
  std::vector<FleetRelease> releases;
  for (const postgres::Row row : rows) {
    FleetRelease one = ReadRelease(row);
    one.node_count = row[15];
    one.withdrawal = row[16];
    releases.push_back(std::move(one));
  }
  return releases;
}

absl::StatusOr<std::vector<ServedChoice>> ListChoicesOf(postgres::Connection& postgres,
                                                        const std::string& node) {
  ASSIGN_OR_RETURN(const ReleaseHistory history, ReadServedReleases(postgres));
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat(Served(), ", now AS (SELECT * FROM served UNION SELECT * FROM ",
                       ServedIn("$2"),
                       " c) SELECT v.text, q.text, s.winner, s.release_number FROM now s JOIN "
                       "environments v USING (environment_id) JOIN problems q USING (problem_id) "
                       "WHERE s.digest IS NOT NULL AND EXISTS (SELECT 1 FROM evidence e JOIN nodes "
                       "n USING (node_id) WHERE e.environment_id = s.environment_id AND "
                       "e.problem_id = s.problem_id AND e.current AND n.name = $3) AND NOT EXISTS "
                       "(SELECT 1 FROM evidence e JOIN nodes n USING (node_id) WHERE "
                       "e.environment_id = s.environment_id AND e.problem_id = s.problem_id AND "
                       "e.current AND NOT e.relayed AND e.evidence >= s.evidence AND n.name <> $3 "
                       "AND ",
                       kTrusted, ") ORDER BY 1, 2, 4"),
          {NumberOf(history.promoted()), NewestServed(history), node}));
  std::vector<ServedChoice> choices;
  for (const postgres::Row row : rows) choices.push_back({row[0], row[1], row[2], row[3]});
  return choices;
}

absl::StatusOr<FleetDiff> DiffPooled(postgres::Connection& postgres, const PromotionScope& scope,
                                     int64_t limit) {
  ASSIGN_OR_RETURN(const ReleaseHistory served, ReadServedReleases(postgres));
  postgres::Params params = ScopeParams(served.promoted(), scope);
  params.push_back(limit);
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Changes(),
                                  " SELECT e.text, q.text, COALESCE(c.before, ''), c.winner, "
                                  "c.before_us, c.winner_us, c.node_count, 0, CASE WHEN c.held "
                                  "THEN c.wanted ELSE 0 END FROM "
                                  "changes c JOIN environments e USING (environment_id) "
                                  "JOIN problems q USING (problem_id) WHERE NOT c.lesser "
                                  "ORDER BY c.held, e.text, q.text LIMIT $5"),
                     params));
  FleetDiff diff = ReadDiff(rows);
  RETURN_IF_ERROR(CountChanges(postgres, served.promoted(), scope, &diff));
  return diff;
}

absl::StatusOr<FleetDiff> DiffFleetReleases(postgres::Connection& postgres, int64_t from,
                                            int64_t to, int64_t limit) {
  for (const int64_t number : {from, to}) {
    if (number != 0) RETURN_IF_ERROR(ReadFleetRelease(postgres, number).status());
  }
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Served(), ", later AS ", ServedIn("$2"),
                                  " SELECT e.text, q.text, "
                                  "CASE WHEN s.digest IS NULL THEN '' ELSE s.winner END, "
                                  "CASE WHEN l.digest IS NULL THEN '' ELSE l.winner END, "
                                  "s.winner_us, l.winner_us, COALESCE(l.node_count, 0), "
                                  "COUNT(*) OVER (), 0 FROM served s "
                                  "FULL JOIN later l USING (environment_id, problem_id) "
                                  "JOIN environments e USING (environment_id) "
                                  "JOIN problems q USING (problem_id) "
                                  "WHERE s.digest IS DISTINCT FROM l.digest "
                                  "ORDER BY e.text, q.text LIMIT $3"),
                     {from, to, limit}));
  return ReadDiff(rows);
}

absl::Status CheckReleaseStands(postgres::Connection& postgres, const Release& made) {
  ASSIGN_OR_RETURN(const ReleaseHistory history,
                   ReadHistory(postgres, absl::StrCat("WHERE r.release_number >= ", made.number)));
  const Release* const now = history.Find(made.number);
  if (now == nullptr) {
    return absl::NotFoundError(absl::StrCat("release: there is no release ", made.number));
  }
  const std::string gone = absl::StrCat("release ", made.number, " does not stand any more: ");
  if (now->state == ReleaseState::kRolledBack && made.state != ReleaseState::kRolledBack) {
    return absl::FailedPreconditionError(
        absl::StrCat(gone, now->end_author, " rolled this canary back"));
  }
  // What is served has no choice of a later release than this one.
  int64_t newest = std::numeric_limits<int64_t>::max();
  for (auto later = history.releases().rbegin(); later->number > made.number; ++later) {
    if (later->number > newest || later->state == ReleaseState::kRolledBack) continue;
    newest = later->restores != 0 ? later->restores : later->number;
    if (newest >= made.number) continue;
    return absl::FailedPreconditionError(absl::StrCat(gone, later->author, " went back to release ",
                                                      newest, ", as release ", later->number));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> ReadReleaseTime(postgres::Connection& postgres, int64_t release) {
  const absl::StatusOr<FleetRelease> one = ReadFleetRelease(postgres, release);
  if (absl::IsNotFound(one.status())) return absl::InfinitePast();
  RETURN_IF_ERROR(one.status());
  return one->release.create_time;
}

absl::StatusOr<std::set<std::string>> ReadReleaseProblems(postgres::Connection& postgres,
                                                          const std::string& environment_text,
                                                          int64_t release) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(Served(),
                                  " SELECT q.text FROM served s JOIN problems q USING (problem_id) "
                                  "WHERE s.environment_id = (SELECT environment_id FROM "
                                  "environments WHERE text = $2) AND s.digest IS NOT NULL"),
                     {release, environment_text}));
  const std::vector<std::string> problems = rows.Column<std::string>();
  return std::set<std::string>(problems.begin(), problems.end());
}

absl::StatusOr<int64_t> SignReleases(postgres::Connection& postgres, const DecisionKey& key) {
  if (key == nullptr) return absl::InvalidArgumentError("KEY: is required");
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(postgres.Execute(kReleaseLock));
  ASSIGN_OR_RETURN(const postgres::Result numbers,
                   postgres.Query("SELECT release_number FROM releases ORDER BY release_number"));
  CheckedReleases checked;
  for (const int64_t number : numbers.Column<int64_t>()) {
    RETURN_IF_ERROR(checked.Check(postgres, number));
    RETURN_IF_ERROR(WriteReleaseDigest(postgres, number, key));
  }
  RETURN_IF_ERROR(Announce(postgres, "release"));
  RETURN_IF_ERROR(transaction.Commit());
  return numbers.size();
}

}  // namespace convtune::db::fleet
