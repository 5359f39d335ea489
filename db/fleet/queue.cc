#include "db/fleet/queue.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "db/fleet/evidence.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"
#include "proto/model/text.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::db::fleet {
namespace {

// Before a failed one is tried again; doubles.
constexpr int kRetrySeconds = 5;

// The condition that another node may yet measure the task `t`; `more` is one of the node `n`.
std::string TakerSql(const std::string& more = "true") {
  return absl::StrCat(
      "EXISTS (SELECT 1 FROM node_devices d JOIN nodes n USING (node_id) WHERE d.current AND "
      "d.tunes AND d.environment_id = t.environment_id AND d.node_id IS DISTINCT FROM t.node_id "
      "AND NOT d.node_id = ANY(t.tuned_by) AND ",
      kTrusted, " AND ", more, ")");
}

// The condition that the task `t` waits for another node than those that measured it, and none is
// heard of.
std::string LoneSql() {
  return absl::StrCat("(t.state = 1 AND t.tuned_by <> '{}' AND NOT ", TakerSql(kLiving), ")");
}

// Ends waiting tasks that were measured, and that no other node is left to measure. CompleteTask
// does the same with its own task.
absl::Status EndUntakeable(postgres::Connection& postgres, const std::string& environment) {
  return postgres.Execute(
      absl::StrCat("UPDATE tasks SET state = 3, end_time = now() WHERE task_id IN (SELECT task_id "
                   "FROM tasks t JOIN environments v USING (environment_id) WHERE v.text = $1 AND "
                   "state = 1 AND tuned_by <> '{}' AND NOT ",
                   TakerSql(), " FOR UPDATE OF t SKIP LOCKED)"),
      {environment});
}

// The condition that a task is $1, and is leased under the token $2, in the fleet $3.
std::string LeaseSql() {
  return absl::StrCat(
      "task_id = $1 AND lease_token = $2 AND state = 2 AND "
      "EXISTS (SELECT 1 FROM fleet WHERE ",
      kFleetIdSql, " = $3)");
}

// Changes the task as `set` says, which has the parameters `more` from $4 on, if its lease is this
// claim's. Returns whether it is.
absl::StatusOr<bool> ChangeLeased(postgres::Connection& postgres, const FleetTask& task,
                                  const std::string& set, const postgres::Params& more = {}) {
  postgres::Params params = {task.task_id, task.token, task.fleet};
  params.insert(params.end(), more.begin(), more.end());
  ASSIGN_OR_RETURN(
      const int64_t ended,
      postgres.Change(absl::StrCat("UPDATE tasks SET ", set, " WHERE ", LeaseSql()), params));
  return ended > 0;
}

// Ends attempts without a result, of the tasks `t` that `where` selects, and returns how many. The
// texts are SQL: `count` is the column of such attempts, of which `most` make a task dead; `lost`
// and `reason` are written to task_failures; there is no other attempt until `not_before`.
absl::StatusOr<int64_t> EndAttempts(postgres::Connection& postgres, const std::string& where,
                                    const postgres::Params& params, const std::string& count,
                                    int most, const std::string& lost, const std::string& reason,
                                    const std::string& not_before) {
  const std::string dead = absl::StrCat("CASE WHEN t.", count, " + 1 >= ", most, " THEN ");
  return postgres.Change(
      absl::StrCat("WITH ended AS (SELECT t.* FROM tasks t WHERE ", where,
                   "), said AS (INSERT INTO task_failures (task_id, attempt, node_id, lost_lease, "
                   "reason) SELECT task_id, failures + lost_leases + 1, node_id, ",
                   lost, ", ", reason,
                   // Any agent may write any reason, also in advance.
                   " FROM ended ON CONFLICT DO NOTHING) UPDATE tasks t SET ", count, " = t.", count,
                   " + 1, node_id = NULL, lease_until = NULL, state = ", dead,
                   "4 ELSE 1 END, end_time = ", dead, "now() END, not_before = ", not_before,
                   " FROM ended WHERE t.task_id = ended.task_id"),
      params);
}

// The newest earlier one of the same hardware that the fleet has tunings of.
absl::StatusOr<std::optional<Environment>> Predecessor(postgres::Connection& postgres,
                                                       const Environment& environment) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT text, gpu_model FROM environments e WHERE gpu_model = $1 "
                                  "AND EXISTS (SELECT 1 FROM evidence m WHERE m.environment_id "
                                  "= e.environment_id AND m.current)",
                                  {environment.gpu_model}));
  std::optional<Environment> newest;
  for (const postgres::Row row : rows) {
    ASSIGN_OR_RETURN(Environment each, Environment::Parse(std::string(row[0])));
    each.gpu_model = row[1];
    Environment same = each;
    same.cudnn = environment.cudnn;
    if (same.ToText() != environment.ToText() || each.cudnn >= environment.cudnn) {
      continue;
    }
    if (!newest.has_value() || newest->cudnn < each.cudnn) newest = each;
  }
  return newest;
}

absl::StatusOr<bool> IsNewestDriver(postgres::Connection& postgres, const std::string& environment,
                                    const std::string& driver) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT DISTINCT driver_version FROM node_devices JOIN "
                                  "environments USING (environment_id) WHERE text = $1 AND "
                                  "driver_version <> ''",
                                  {environment}));
  const std::vector<std::string> all = rows.Column<std::string>();
  return std::none_of(all.begin(), all.end(), [&](const std::string& other) {
    return VersionNumbers(driver) < VersionNumbers(other);
  });
}

absl::StatusOr<int64_t> QueueAll(postgres::Connection& postgres, FleetNames& names,
                                 const Environment& environment, const std::string& driver) {
  const std::string here = environment.ToText();
  int64_t queued = 0;
  const auto queue = [&](const std::string& from, const std::string& of_driver,
                         const std::string& reason) -> absl::Status {
    BatchRequest request;
    request.environment_text = here;
    request.author = "convtune-fleet";
    request.reason = reason;
    ASSIGN_OR_RETURN(const int64_t batch, QueueStale(postgres, names, from, of_driver,
                                                     std::numeric_limits<int64_t>::max(),
                                                     /*again=*/false, &request));
    if (batch != 0) queued += std::ssize(request.tasks);
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const std::optional<Environment> before, Predecessor(postgres, environment));
  if (before.has_value()) {
    RETURN_IF_ERROR(
        queue(before->ToText(), "",
              absl::StrCat("cuDNN ", before->cudnn.ToText(), " to ", environment.cudnn.ToText())));
  }
  if (driver.empty()) return queued;
  ASSIGN_OR_RETURN(const bool newest, IsNewestDriver(postgres, here, driver));
  if (newest) RETURN_IF_ERROR(queue(here, driver, absl::StrCat("driver ", driver)));
  return queued;
}

}  // namespace

absl::StatusOr<int64_t> QueueBatch(postgres::Connection& postgres, FleetNames& names,
                                   const BatchRequest& request) {
  ASSIGN_OR_RETURN(const Environment environment, Environment::Parse(request.environment_text));
  RETURN_IF_ERROR(names.AddEnvironments({environment}));
  std::vector<std::string> texts;
  std::vector<double> weights;
  for (const NewTask& task : request.tasks) {
    texts.push_back(task.problem_text);
    weights.push_back(task.weight);
  }
  RETURN_IF_ERROR(names.AddProblems(texts));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  RETURN_IF_ERROR(EndUntakeable(postgres, request.environment_text));
  ASSIGN_OR_RETURN(const int64_t batch_id,
                   postgres.QueryValue<int64_t>(
                       "INSERT INTO batches (kind, author, reason, budget_ms) VALUES ($1,$2,$3,$4) "
                       "RETURNING batch_id",
                       {request.kind, request.author, request.reason,
                        absl::ToInt64Milliseconds(request.budget)}));
  ASSIGN_OR_RETURN(
      const int64_t made,
      postgres.Change(
          absl::StrCat(
              "WITH ", kNodesWantedSql,
              " INSERT INTO tasks (batch_id, environment_id, problem_id, weight, nodes_wanted) "
              "SELECT $1, environment_id, problem_id, MAX(t.weight), CASE WHEN $5 > 0 THEN $5 ELSE "
              "COALESCE(MAX(nodes), 1) END FROM unnest($3::text[], $4::float8[]) AS t(text, "
              "weight) LEFT JOIN problems q USING (text) CROSS JOIN (SELECT (SELECT "
              "environment_id FROM environments WHERE text = $2)) v LEFT JOIN wanting USING "
              "(environment_id) WHERE NOT "
              "EXISTS (SELECT 1 FROM tasks o WHERE o.environment_id = v.environment_id AND "
              "o.problem_id = q.problem_id AND o.state IN (1, 2)) GROUP BY environment_id, "
              "problem_id"),
          {batch_id, request.environment_text, texts, weights, request.nodes}));
  if (made == 0) return 0;
  RETURN_IF_ERROR(Announce(postgres, "task"));
  RETURN_IF_ERROR(transaction.Commit());
  return batch_id;
}

absl::StatusOr<QueuedAlready> FindQueued(postgres::Connection& postgres,
                                         const BatchRequest& request) {
  std::vector<std::string> texts;
  for (const NewTask& task : request.tasks) texts.push_back(task.problem_text);
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat("SELECT t.batch_id, COUNT(*) FILTER (WHERE ", LoneSql(),
                                  ") FROM tasks t JOIN environments v USING (environment_id) JOIN "
                                  "problems q USING (problem_id) WHERE v.text = $1 AND q.text = "
                                  "ANY($2::text[]) AND t.state IN (1, 2) GROUP BY 1 ORDER BY 1"),
                     {request.environment_text, texts}));
  QueuedAlready queued;
  for (const postgres::Row row : rows) {
    queued.batches.push_back(row[0]);
    queued.lone += int64_t{row[1]};
  }
  return queued;
}

absl::StatusOr<int64_t> QueueStale(postgres::Connection& postgres, FleetNames& names,
                                   const std::string& from, const std::string& driver, int64_t most,
                                   bool again, BatchRequest* request) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          "WITH lately AS MATERIALIZED (SELECT DISTINCT problem_id FROM tasks JOIN batches USING "
          "(batch_id) JOIN environments USING (environment_id) WHERE kind = 2 AND text = $2 AND "
          "batches.create_time > now() - interval '7 days') "
          "SELECT q.text, COALESCE((SELECT SUM(w.misses) FROM wanted w WHERE w.environment_id = "
          "v.environment_id AND w.problem_id = s.problem_id), 0) * 1000 + s.nodes FROM "
          "environments v CROSS JOIN (SELECT problem_id, COUNT(*) AS nodes, MAX(evidence) AS "
          "evidence FROM evidence JOIN environments USING (environment_id) WHERE text = $1 AND "
          "current GROUP BY problem_id) s JOIN problems q USING (problem_id) LEFT JOIN lately l "
          "USING (problem_id) WHERE v.text = $2 AND ($4 OR l.problem_id IS NULL) "
          "AND NOT EXISTS (SELECT 1 FROM evidence e JOIN provenances p USING (provenance_id) "
          "WHERE e.environment_id = v.environment_id AND e.problem_id = s.problem_id AND "
          "e.current AND e.evidence >= s.evidence AND ($3 = '' OR p.driver_version = $3)) ORDER "
          "BY 2 DESC, 1 LIMIT $5",
          {from, request->environment_text, driver, again, most}));
  request->kind = BatchKind::kVerify;
  request->tasks.clear();
  for (const postgres::Row row : rows) request->tasks.push_back({row[0], row[1]});
  if (request->tasks.empty()) return 0;
  return QueueBatch(postgres, names, *request);
}

absl::StatusOr<int64_t> QueueVerification(postgres::Connection& postgres, FleetNames& names,
                                          const Environment& environment,
                                          const std::string& driver) {
  const std::string lock =
      "hashtextextended('convtune verify ' || current_schema() || ' ' || $1, 0)";
  const postgres::Params params = {environment.ToText()};
  ASSIGN_OR_RETURN(
      const bool ours,
      postgres.QueryValue<bool>(absl::StrCat("SELECT pg_try_advisory_lock(", lock, ")"), params));
  if (!ours) return 0;
  absl::StatusOr<int64_t> queued = QueueAll(postgres, names, environment, driver);
  // Where the connection is gone, so is the lock.
  RETURN_IF_ERROR(postgres.Execute(absl::StrCat("SELECT pg_advisory_unlock(", lock, ")"), params));
  return queued;
}

absl::StatusOr<std::vector<FleetTask>> ClaimTasks(postgres::Connection& postgres, FleetNames& names,
                                                  int64_t node_id, const std::string& environment,
                                                  int64_t limit, absl::Duration lease) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  RETURN_IF_ERROR(
      EndAttempts(postgres,
                  "t.environment_id = (SELECT environment_id FROM environments WHERE text = $1) "
                  "AND state = 2 AND lease_until < clock_timestamp() ORDER BY task_id LIMIT 100 "
                  "FOR UPDATE SKIP LOCKED",
                  {environment}, "lost_leases", kMostLostLeases, "true",
                  "'the node did not come back'", "t.not_before")
          .status());
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat(
              "WITH open AS (SELECT task_id FROM tasks JOIN environments v USING "
              "(environment_id) WHERE v.text = $1 AND state = 1 AND not_before <= "
              "clock_timestamp() AND NOT $3 = ANY(tuned_by) AND EXISTS (SELECT 1 FROM nodes n "
              "WHERE n.node_id = $3 AND ",
              kTrusted,
              ") ORDER BY weight DESC, task_id LIMIT $2 FOR UPDATE OF tasks SKIP LOCKED) UPDATE "
              "tasks t SET state = 2, node_id = $3, lease_token = t.lease_token + 1, lease_until = "
              "clock_timestamp() + $4::float8 * interval '1 second' FROM open, batches b, problems "
              "q WHERE t.task_id = open.task_id AND b.batch_id = t.batch_id AND q.problem_id = "
              "t.problem_id RETURNING t.task_id, t.lease_token, q.text, b.kind = 2 OR "
              "t.tuned_by <> '{}', b.budget_ms"),
          {environment, limit, node_id, lease}));
  if (rows.empty()) RETURN_IF_ERROR(EndUntakeable(postgres, environment));
  RETURN_IF_ERROR(transaction.Commit());
  std::vector<FleetTask> tasks;
  for (const postgres::Row row : rows) {
    tasks.push_back({row[0], row[1], names.fleet_id(), environment, row[2], row[3],
                     absl::Milliseconds(int64_t{row[4]})});
  }
  return tasks;
}

absl::StatusOr<bool> RenewTask(postgres::Connection& postgres, const FleetTask& task,
                               absl::Duration lease) {
  return ChangeLeased(postgres, task,
                      "lease_until = clock_timestamp() + $4::float8 * interval '1 second'",
                      {lease});
}

absl::StatusOr<bool> CompleteTask(postgres::Connection& postgres, const FleetTask& task) {
  // The rows are the evidence that counts: of a verification what nodes measured for this task, of
  // a tuning also what others measured before. Evidence of a deviating node does not count, nor
  // (below) what is worse than another node's, whose GPU was busy, say.
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat(
              "SELECT nodes_wanted, e.node_id, e.payload, v.text, v.gpu_model, ", TakerSql(),
              ", EXISTS (SELECT 1 FROM nodes n WHERE n.node_id = t.node_id AND ", kTrusted,
              "), t.node_id FROM tasks t JOIN batches USING (batch_id) JOIN environments v "
              "USING (environment_id) LEFT JOIN (evidence e JOIN nodes n USING (node_id)) ON "
              "e.environment_id = t.environment_id AND e.problem_id = t.problem_id AND ",
              EvidenceCountsSql(),
              " AND NOT e.relayed AND (e.node_id = t.node_id OR e.node_id = "
              "ANY(t.tuned_by) OR (kind = 1 AND e.evidence >= $4)) AND NOT EXISTS (SELECT 1 FROM "
              "pooled p WHERE p.environment_id = t.environment_id AND p.problem_id = t.problem_id "
              "AND e.node_id = ANY(p.left_out)) WHERE ",
              LeaseSql()),
          {task.task_id, task.token, task.fleet, Evidence::kIncomplete}));
  if (rows.empty()) return false;
  // It was trusted when it took the task.
  const bool trusted = rows[0][6];
  if (!trusted) return ReturnTask(postgres, task);
  int wanted = rows[0][0];
  const bool others = rows[0][5];  // are left that could measure it
  std::vector<int64_t> nodes;
  std::vector<TuningRecord> measured;
  TuningStanding best;
  for (const postgres::Row row : rows) {
    if (!row[1].Maybe<int64_t>().has_value()) continue;
    absl::StatusOr<TuningRecord> stored = ReadPayload(row[2], row[3], row[4]);
    if (!stored.ok()) continue;
    nodes.push_back(row[1]);
    best = std::max(best, StandingOf(stored->tuning));
    measured.push_back(*std::move(stored));
  }
  std::erase_if(measured, [&](const auto& one) { return StandingOf(one.tuning) < best; });
  if (wanted == 2 && measured.size() == 2 && Disagree(measured[0].tuning, measured[1].tuning)) {
    wanted = 3;
  }
  // A node that had it from a release measured nothing, unless the task forces it, as the next try
  // will where another node measured it.
  const int64_t node = rows[0][7];
  const bool asked =
      task.force || nodes.empty() || std::count(nodes.begin(), nodes.end(), node) > 0;
  if (wanted == 1 || (asked && !others) || std::ssize(measured) >= wanted) {
    return ChangeLeased(postgres, task, "state = 3, end_time = now(), lease_until = NULL");
  }
  if (asked) nodes.push_back(node);
  ASSIGN_OR_RETURN(
      const bool ended,
      ChangeLeased(postgres, task,
                   "state = 1, node_id = NULL, lease_until = NULL, nodes_wanted = $4, tuned_by "
                   "= ARRAY(SELECT DISTINCT unnest(tuned_by || $5::integer[]))",
                   {wanted, nodes}));
  RETURN_IF_ERROR(Announce(postgres, "task"));
  return ended;
}

absl::StatusOr<bool> ReturnTask(postgres::Connection& postgres, const FleetTask& task) {
  return ChangeLeased(postgres, task, "state = 1, node_id = NULL, lease_until = NULL");
}

absl::StatusOr<bool> FailTask(postgres::Connection& postgres, const FleetTask& task,
                              const std::string& reason) {
  ASSIGN_OR_RETURN(
      const int64_t ended,
      EndAttempts(
          postgres, LeaseSql() + " FOR UPDATE", {task.task_id, task.token, task.fleet, reason},
          "failures", kMostFailures, "false", "$4",
          absl::StrCat("now() + ", kRetrySeconds, " * (1 << t.failures) * interval '1 second'")));
  return ended > 0;
}

absl::StatusOr<BatchProgress> ReadProgress(postgres::Connection& postgres, int64_t batch_id) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat("SELECT COUNT(*) FILTER (WHERE state = 1), COUNT(*) FILTER (WHERE state = "
                       "2), COUNT(*) FILTER (WHERE state = 3), COUNT(*) FILTER (WHERE state = 4), "
                       "COUNT(*) FILTER (WHERE state = 5), COUNT(*) FILTER (WHERE state = 1 AND "
                       "tuned_by <> '{}'), COUNT(*) FILTER (WHERE ",
                       LoneSql(),
                       "), COUNT(DISTINCT node_id) FILTER (WHERE state = 2) FROM tasks t WHERE "
                       "batch_id = $1"),
          {batch_id}));
  const postgres::Row row = rows[0];
  BatchProgress progress{row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]};
  if (progress.total() > 0) return progress;
  return absl::NotFoundError(absl::StrCat("batch: there is no batch ", batch_id));
}

absl::StatusOr<std::vector<DeadTask>> ListDeadTasks(postgres::Connection& postgres,
                                                    int64_t batch_id, int64_t limit) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT t.task_id, q.text, e.text, COALESCE(n.name, '?') || ': ' || f.reason "
                     "FROM (SELECT * FROM tasks WHERE state = 4 AND ($1 = 0 OR batch_id = $1) "
                     "ORDER BY task_id LIMIT $2) t JOIN problems q USING (problem_id) JOIN "
                     "environments e USING (environment_id) LEFT JOIN task_failures f ON f.task_id "
                     "= t.task_id LEFT JOIN nodes n ON n.node_id = f.node_id ORDER BY t.task_id, "
                     "f.attempt",
                     {batch_id, limit}));
  std::vector<DeadTask> dead;
  int64_t last = 0;
  for (const postgres::Row row : rows) {
    if (dead.empty() || int64_t{row[0]} != last) dead.push_back({row[1], row[2], {}});
    last = row[0];
    dead.back().reasons.push_back(row[3]);
  }
  return dead;
}

absl::StatusOr<int64_t> CancelBatch(postgres::Connection& postgres, int64_t batch_id) {
  return postgres.Change(
      "UPDATE tasks SET state = 5, end_time = now(), lease_until = NULL WHERE batch_id = $1 AND "
      "state IN (1, 2)",
      {batch_id});
}

}  // namespace convtune::db::fleet
