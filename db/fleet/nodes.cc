#include "db/fleet/nodes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

// Reads rows of a number, which `from` and its GROUP BY give with rows `n` of nodes. `heeded` is
// the condition of those that have heeded what the number names.
absl::StatusOr<std::map<int64_t, Heeding>> ReadHeeding(
    postgres::Connection& postgres, const std::string& with, const std::string& number,
    const std::string& heeded, const std::string& from, const postgres::Params& params) {
  const auto missing = [&heeded](const std::string& living) {
    return absl::StrCat(", string_agg(n.name, E'\\n' ORDER BY n.name) FILTER (WHERE NOT (", heeded,
                        ") AND ", living, kLiving, ")");
  };
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat(with, " SELECT ", number, ", COUNT(*), COUNT(*) FILTER (WHERE ", kLiving,
                       ")", missing(""), missing("NOT "), " FROM ", from, " GROUP BY ", number),
          params));
  std::map<int64_t, Heeding> all;
  for (const postgres::Row row : rows) {
    all[row[0]] = {row[1], row[2], SplitNames(row[3]), SplitNames(row[4])};
  }
  return all;
}

// Has all that nodes of that name delivered pooled anew.
absl::Status QueuePoolingOf(postgres::Connection& postgres, const std::string& name) {
  return postgres.Execute(
      "SELECT queue_pooling(array_agg(environment_id), array_agg(problem_id)) FROM evidence JOIN "
      "nodes USING (node_id) WHERE current AND name = $1",
      {name});
}

}  // namespace

absl::StatusOr<std::map<int64_t, Heeding>> ReadBanHeeding(postgres::Connection& postgres) {
  return ReadHeeding(
      postgres, "", "b.ban_id", "b.ban_id = ANY(n.heeded_bans)",
      absl::StrCat("bans b CROSS JOIN nodes n WHERE n.forget_time IS NULL AND ", kActive), {});
}

absl::StatusOr<std::map<int64_t, Heeding>> ReadReleaseHeeding(postgres::Connection& postgres,
                                                              int64_t only) {
  return ReadHeeding(
      postgres,
      "WITH place AS (SELECT DISTINCT environment_id, node_id FROM node_devices WHERE current), "
      "changed AS (SELECT DISTINCT release_number, environment_id FROM release_choices WHERE $1 = "
      "0 OR release_number = $1), concerned AS (SELECT release_number, node_id FROM changed JOIN "
      "place USING (environment_id) JOIN releases USING (release_number) WHERE state = 1 UNION "
      "SELECT r.release_number, n.node_id FROM releases r JOIN nodes n ON n.name = "
      "ANY(r.canary_nodes) WHERE n.forget_time IS NULL AND r.state <> 1 AND ($1 = 0 OR "
      "r.release_number = $1))",
      "r.release_number",
      // A node may say a number that a fleet which was restored does not have any more, and serves
      // nothing that counts with a canary that was rolled back.
      "CASE WHEN r.state = 3 THEN n.release_number <> r.release_number ELSE n.release_number "
      "BETWEEN r.release_number AND (SELECT MAX(release_number) FROM releases) AND "
      "n.release_number NOT IN (SELECT release_number FROM releases WHERE state = 3) END",
      "concerned JOIN releases r USING (release_number) JOIN nodes n USING (node_id)", {only});
}

std::vector<std::string> SplitNames(const std::string& names) {
  return absl::StrSplit(names, '\n', absl::SkipEmpty());
}

absl::StatusOr<int64_t> RegisterNode(postgres::Connection& postgres, const std::string& name) {
  ASSIGN_OR_RETURN(const bool locked,
                   postgres.QueryValue<bool>("SELECT pg_try_advisory_lock(hashtextextended("
                                             "'convtune node ' || current_schema() || ' ' || $1, "
                                             "0))",
                                             {name}));
  if (!locked) {
    return absl::AlreadyExistsError(
        absl::StrCat("node: another agent speaks for ", name, "; give each its own --node"));
  }
  ASSIGN_OR_RETURN(
      const postgres::Result others,
      postgres.Query("SELECT login, session_user FROM nodes WHERE name = $1 AND login "
                     "<> session_user AND row_security_active('nodes') AND forget_time IS NULL",
                     {name}));
  if (!others.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node: ", name, " is of the login ", std::string(others[0][0]), ", and this agent's is ",
        std::string(others[0][1]), "; the owner of the tables can free it: fleet.md"));
  }
  // A login that may write every node's rows takes none for itself.
  return postgres.QueryValue<int64_t>(
      "INSERT INTO nodes (name, login) VALUES ($1, CASE WHEN row_security_active('nodes') THEN "
      "session_user END) ON CONFLICT (name) WHERE forget_time IS NULL DO UPDATE SET last_seen = "
      "now(), login = "
      "EXCLUDED.login RETURNING node_id",
      {name});
}

absl::Status WriteHeartbeat(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                            const Heartbeat& heartbeat) {
  std::vector<std::string> devices, drivers, environments;
  for (const NodeDevice& device : heartbeat.devices) {
    devices.push_back(device.name);
    drivers.push_back(device.driver_version);
    environments.push_back(device.environment_text);
  }
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  postgres::Params params = {node_id, heartbeat.node_time, heartbeat.heeded_bans};
  std::string set;
  Heartbeat::Visit(heartbeat, [&](const char* column, const auto& field) {
    params.emplace_back(field);
    absl::StrAppend(&set, ", ", column, " = $", params.size());
  });
  ASSIGN_OR_RETURN(
      const int64_t written,
      postgres.Change(absl::StrCat("UPDATE nodes SET last_seen = now(), clock_offset_us = "
                                   "EXTRACT(EPOCH FROM $2::timestamptz - clock_timestamp()) * "
                                   "1000000, heeded_bans = $3",
                                   set, " WHERE node_id = $1 AND forget_time IS NULL"),
                      params));
  if (written == 0) {
    return absl::AbortedError("node: the fleet does not know this node any more");
  }
  RETURN_IF_ERROR(postgres.Execute(
      "UPDATE node_devices SET current = false WHERE node_id = $1 AND current AND (device, "
      "environment_id) NOT IN (SELECT device, environment_id FROM unnest($2::text[], $3::text[]) "
      "AS d(device, text) JOIN environments USING (text))",
      {node_id, devices, environments}));
  RETURN_IF_ERROR(postgres.Execute(
      "INSERT INTO node_devices (node_id, device, environment_id, driver_version, current, tunes) "
      "SELECT $1, device, environment_id, driver, true, $5 FROM unnest($2::text[], $3::text[], "
      "$4::text[]) AS d(device, text, driver) LEFT JOIN environments USING (text) ON CONFLICT "
      "(node_id, device, environment_id) DO UPDATE SET driver_version = EXCLUDED.driver_version, "
      "current = true, tunes = EXCLUDED.tunes, last_seen = now()",
      {node_id, devices, environments, drivers, heartbeat.tunes}));
  return transaction.Commit();
}

absl::Status WriteWanted(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                         const std::vector<WantedProblem>& wanted) {
  std::vector<std::string> texts, problems;
  std::vector<int64_t> misses;
  for (const WantedProblem& each : wanted) {
    texts.push_back(each.key.environment_text);
    problems.push_back(each.key.problem_text);
    misses.push_back(each.misses);
  }
  RETURN_IF_ERROR(names.AddProblems(problems));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  RETURN_IF_ERROR(postgres.Execute("DELETE FROM wanted WHERE node_id = $1", {node_id}));
  RETURN_IF_ERROR(postgres.Execute(
      "INSERT INTO wanted (node_id, environment_id, problem_id, misses) SELECT $1, environment_id, "
      "problem_id, misses FROM unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS "
      "w(environment, problem, misses, place) LEFT JOIN environments e ON e.text = environment "
      "LEFT JOIN problems q ON q.text = problem ORDER BY place ON CONFLICT DO NOTHING",
      {node_id, texts, problems, misses}));
  return transaction.Commit();
}

absl::StatusOr<int64_t> ReadHeededRelease(postgres::Connection& postgres, int64_t node_id) {
  return postgres.QueryValue<int64_t>("SELECT release_number FROM nodes WHERE node_id = $1",
                                      {node_id});
}

absl::Status ForgetNode(postgres::Connection& postgres, const std::string& name) {
  ASSIGN_OR_RETURN(
      const postgres::Result node,
      postgres.Query(absl::StrCat("SELECT node_id, ", kLiving,
                                  " FROM nodes n WHERE name = $1 AND forget_time IS NULL"),
                     {name}));
  if (node.empty()) return absl::NotFoundError(absl::StrCat("NODE: there is no node ", name));
  if (node[0][1]) {
    return absl::FailedPreconditionError(
        absl::StrCat("NODE: ", name, " is living: stop its agent, and wait until it is silent"));
  }
  return postgres.Execute("SELECT forget_node($1)", {int64_t{node[0][0]}});
}

absl::Status DistrustNode(postgres::Connection& postgres, const std::string& name,
                          const std::string& author, const std::string& reason) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  // Whoever lists afterwards what rests on the node has what was being promoted.
  RETURN_IF_ERROR(postgres.Execute(kReleaseLock));
  ASSIGN_OR_RETURN(
      const int64_t made,
      postgres.Change(
          "INSERT INTO distrusts (node, author, reason) SELECT $1, $2, $3 WHERE EXISTS "
          "(SELECT 1 FROM nodes WHERE name = $1) ON CONFLICT (node) WHERE end_time IS NULL "
          "DO NOTHING",
          {name, author, reason}));
  if (made == 0) {
    ASSIGN_OR_RETURN(
        const bool there,
        postgres.QueryValue<bool>("SELECT EXISTS (SELECT 1 FROM nodes WHERE name = $1)", {name}));
    if (!there) return absl::NotFoundError(absl::StrCat("NODE: there is no node ", name));
    return absl::AlreadyExistsError(absl::StrCat("NODE: ", name, " is distrusted already"));
  }
  RETURN_IF_ERROR(QueuePoolingOf(postgres, name));
  return transaction.Commit();
}

absl::Status TrustNode(postgres::Connection& postgres, const std::string& name,
                       const std::string& author) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  ASSIGN_OR_RETURN(
      const int64_t ended,
      postgres.Change("UPDATE distrusts SET end_time = now(), end_author = $2, end_login = "
                      "session_user WHERE node = $1 AND end_time IS NULL",
                      {name, author}));
  if (ended == 0) return absl::NotFoundError(absl::StrCat("NODE: ", name, " is not distrusted"));
  RETURN_IF_ERROR(QueuePoolingOf(postgres, name));
  return transaction.Commit();
}

absl::StatusOr<std::vector<NodeStatus>> ListNodes(postgres::Connection& postgres) {
  Heartbeat none;
  std::string columns;
  Heartbeat::Visit(none, [&columns](const char* column, const auto& /*field*/) {
    absl::StrAppend(&columns, ", ", column);
  });
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(
          "SELECT n.name, EXTRACT(EPOCH FROM now() - last_seen)::float8, ", kLiving,
          ", d.author, d.reason, clock_offset_us, array_to_string(ARRAY(SELECT DISTINCT e.text || "
          "CASE WHEN v.driver_version = '' THEN '' ELSE ',driver=' || v.driver_version END FROM "
          "node_devices v JOIN environments e USING (environment_id) WHERE v.node_id = n.node_id "
          "AND v.current ORDER BY 1), E'\\n')",
          columns,
          " FROM nodes n LEFT JOIN distrusts d ON d.node = n.name AND d.end_time IS NULL WHERE "
          "forget_time IS NULL ORDER BY name")));
  std::vector<NodeStatus> nodes;
  for (const postgres::Row row : rows) {
    nodes.push_back({row[0], row[1], row[2], row[3], row[4], absl::Microseconds(int64_t{row[5]}),
                     Heartbeat(), SplitNames(row[6])});
    int next = 7;
    Heartbeat::Visit(nodes.back().last,
                     [&](const char* /*column*/, auto& field) { field = row[next++]; });
  }
  return nodes;
}

absl::StatusOr<FleetCountsStatus> CountFleet(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(absl::StrCat(
          "SELECT (SELECT COUNT(*) FROM environments), (SELECT COUNT(*) FROM problems), "
          "(SELECT COUNT(*) FROM evidence WHERE current), (SELECT COUNT(*) FROM pooled), "
          "(SELECT COUNT(*) FROM pool_queue), (SELECT COUNT(*) FROM tasks WHERE state = 1), "
          "(SELECT COUNT(*) FROM tasks WHERE state = 2), (SELECT COUNT(*) FROM tasks WHERE state "
          "= 4), (SELECT COUNT(*) FROM pins WHERE ",
          kActive, "), (SELECT COUNT(*) FROM bans WHERE ", kActive, ")")));
  const postgres::Row row = rows[0];
  return FleetCountsStatus{row[0], row[1], row[2], row[3], row[4],
                           row[5], row[6], row[7], row[8], row[9]};
}

}  // namespace convtune::db::fleet
