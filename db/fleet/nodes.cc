#include "db/fleet/nodes.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {

absl::StatusOr<int64_t> RegisterNode(postgres::Connection& postgres, const std::string& name) {
  ASSIGN_OR_RETURN(
      const postgres::Result lock,
      postgres.Query("SELECT pg_try_advisory_lock(hashtextextended('convtune node ' || "
                     "current_schema() || ' ' || $1, 0))",
                     postgres::Params().Text(name)));
  if (!lock.Bool(0, 0)) {
    return absl::AlreadyExistsError(
        absl::StrCat("node: another agent speaks for ", name, "; give each its own --node"));
  }
  ASSIGN_OR_RETURN(
      const postgres::Result made,
      postgres.Query("INSERT INTO nodes (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET "
                     "last_seen = now() RETURNING node_id",
                     postgres::Params().Text(name)));
  return made.Int(0, 0);
}

absl::Status WriteHeartbeat(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                            const Heartbeat& heartbeat) {
  std::vector<std::string> devices;
  std::vector<int64_t> environments;
  for (const NodeDevice& device : heartbeat.devices) {
    ASSIGN_OR_RETURN(const int64_t id, names.Environment(device.environment));
    devices.push_back(device.name);
    environments.push_back(id);
  }
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  ASSIGN_OR_RETURN(
      const postgres::Result written,
      postgres.Query(
          "UPDATE nodes SET last_seen = now(), agent_version = $2, daemon_version = $3, "
          "daemon_start_time = to_timestamp($4::float8 / 1000000), clock_offset_us = $5 - "
          "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint, tuning_count = $6, "
          "lookups = $7, hits = $8, queue_depth = $9, outbox_depth = $10, outbox_dropped = "
          "$11, outbox_superseded = $12, release_number = $13, last_error = $14, "
          "outbox_lag_seconds = $15, unapplied_pins = $16, pin_error = $17, "
          "release_missing = $18, release_extra = $19, unapplied_bans = $20, ban_error = $21 WHERE "
          "node_id = $1",
          postgres::Params()
              .Int(node_id)
              .Text(heartbeat.agent_version)
              .Text(heartbeat.daemon_version)
              .Int(absl::ToUnixMicros(heartbeat.daemon_start_time))
              .Int(absl::ToUnixMicros(heartbeat.node_time))
              .Int(heartbeat.tuning_count)
              .Int(heartbeat.lookups)
              .Int(heartbeat.hits)
              .Int(heartbeat.queue_depth)
              .Int(heartbeat.outbox_depth)
              .Int(heartbeat.outbox_dropped)
              .Int(heartbeat.outbox_superseded)
              .Int(heartbeat.release)
              .Text(heartbeat.last_error)
              .Real(absl::ToDoubleSeconds(heartbeat.outbox_lag))
              .Int(heartbeat.unapplied_pins)
              .Text(heartbeat.pin_error)
              .Int(heartbeat.release_missing)
              .Int(heartbeat.release_extra)
              .Int(heartbeat.unapplied_bans)
              .Text(heartbeat.ban_error)));
  if (written.changed() == 0) {
    return absl::AbortedError("node: the fleet does not know this node any more");
  }
  RETURN_IF_ERROR(
      postgres.Execute("UPDATE node_devices SET current = false WHERE node_id = $1 AND current AND "
                       "(device, environment_id) NOT IN (SELECT * FROM unnest($2::text[], "
                       "$3::integer[]))",
                       postgres::Params().Int(node_id).Texts(devices).Ints(environments)));
  for (size_t i = 0; i < devices.size(); ++i) {
    const NodeDevice& device = heartbeat.devices[i];
    RETURN_IF_ERROR(postgres.Execute(
        "INSERT INTO node_devices (node_id, device, environment_id, state, "
        "driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid, "
        "memory_bytes, current) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,true) ON CONFLICT "
        "(node_id, device, environment_id) "
        "DO UPDATE SET state = EXCLUDED.state, driver_version = "
        "EXCLUDED.driver_version, cuda_version = EXCLUDED.cuda_version, cublaslt_build = "
        "EXCLUDED.cublaslt_build, nvrtc_build = EXCLUDED.nvrtc_build, gpu_uuid = "
        "EXCLUDED.gpu_uuid, memory_bytes = EXCLUDED.memory_bytes, current = true, "
        "last_seen = now()",
        postgres::Params()
            .Int(node_id)
            .Text(device.name)
            .Int(environments[i])
            .Int(device.state)
            .Text(device.provenance.driver_version)
            .Text(device.provenance.cuda_version)
            .Text(device.provenance.cublaslt_build)
            .Text(device.provenance.nvrtc_build)
            .Text(device.provenance.gpu_uuid)
            .Int(device.provenance.memory_bytes)));
  }
  return transaction.Commit();
}

absl::Status WriteWanted(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                         const std::vector<WantedProblem>& wanted) {
  std::vector<int64_t> environments, problems, misses;
  std::vector<double> first, last;
  for (const WantedProblem& each : wanted) {
    ASSIGN_OR_RETURN(const Environment environment, Environment::Parse(each.key.environment_text));
    ASSIGN_OR_RETURN(const int64_t environment_id, names.Environment(environment));
    ASSIGN_OR_RETURN(const int64_t problem_id, names.Problem(each.key.problem_text));
    environments.push_back(environment_id);
    problems.push_back(problem_id);
    misses.push_back(each.misses);
    first.push_back(absl::ToDoubleSeconds(each.first_seen - absl::UnixEpoch()));
    last.push_back(absl::ToDoubleSeconds(each.last_seen - absl::UnixEpoch()));
  }
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  RETURN_IF_ERROR(
      postgres.Execute("DELETE FROM wanted WHERE node_id = $1", postgres::Params().Int(node_id)));
  RETURN_IF_ERROR(postgres.Execute(
      "INSERT INTO wanted (environment_id, problem_id, node_id, misses, first_seen, "
      "last_seen) SELECT e, q, $1, m, to_timestamp(f), to_timestamp(l) FROM "
      "unnest($2::integer[], $3::integer[], $4::bigint[], $5::float8[], $6::float8[]) "
      "AS t(e, q, m, f, l) ON CONFLICT DO NOTHING",
      postgres::Params()
          .Int(node_id)
          .Ints(environments)
          .Ints(problems)
          .Ints(misses)
          .Reals(first)
          .Reals(last)));
  return transaction.Commit();
}

absl::Status WriteServedRelease(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                                int64_t release) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  RETURN_IF_ERROR(postgres.Execute("UPDATE nodes SET release_number = $2 WHERE node_id = $1",
                                   postgres::Params().Int(node_id).Int(release)));
  return transaction.Commit();
}

absl::StatusOr<std::vector<NodeStatus>> ListNodes(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT node_id, name, EXTRACT(EPOCH FROM now() - last_seen)::float8, "
                     "agent_version, daemon_version, clock_offset_us, outbox_depth, "
                     "outbox_dropped, tuning_count, release_number, last_error, "
                     "outbox_lag_seconds, unapplied_pins, pin_error, release_missing, "
                     "release_extra, unapplied_bans, ban_error FROM nodes "
                     "ORDER BY name"));
  ASSIGN_OR_RETURN(
      const postgres::Result devices,
      postgres.Query("SELECT DISTINCT d.node_id, e.text, d.driver_version FROM node_devices d "
                     "JOIN environments e USING (environment_id) WHERE d.current ORDER BY 1, 2"));
  std::map<int64_t, std::vector<std::string>> by_node;
  for (int row = 0; row < devices.rows(); ++row) {
    const std::string driver = devices.Text(row, 2);
    by_node[devices.Int(row, 0)].push_back(
        absl::StrCat(devices.Text(row, 1), driver.empty() ? "" : ",driver=", driver));
  }
  std::vector<NodeStatus> nodes;
  for (int row = 0; row < rows.rows(); ++row) {
    nodes.push_back({rows.Text(row, 1), absl::Seconds(rows.Real(row, 2)), rows.Text(row, 3),
                     rows.Text(row, 4), absl::Microseconds(rows.Int(row, 5)), rows.Int(row, 6),
                     rows.Int(row, 7), absl::Seconds(rows.Real(row, 11)), rows.Int(row, 8),
                     rows.Int(row, 9), rows.Int(row, 14), rows.Int(row, 15), rows.Int(row, 12),
                     rows.Text(row, 13), rows.Int(row, 16), rows.Text(row, 17), rows.Text(row, 10),
                     by_node[rows.Int(row, 0)]});
  }
  return nodes;
}

absl::StatusOr<FleetCountsStatus> CountFleet(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(
      const postgres::Result row,
      postgres.Query(
          "SELECT (SELECT COUNT(*) FROM environments), (SELECT COUNT(*) FROM problems), "
          "(SELECT COUNT(*) FROM evidence WHERE current), (SELECT COUNT(*) FROM pooled), "
          "(SELECT COUNT(*) FROM pool_queue), (SELECT COUNT(*) FROM tasks WHERE state = 1), "
          "(SELECT COUNT(*) FROM tasks WHERE state = 2), (SELECT COUNT(*) FROM tasks WHERE state "
          "= 4), (SELECT COUNT(*) FROM pins WHERE end_time IS NULL AND (expire_time IS NULL OR "
          "expire_time > now())), (SELECT COUNT(*) FROM bans WHERE end_time IS NULL AND "
          "(expire_time IS NULL OR expire_time > now()))"));
  return FleetCountsStatus{row.Int(0, 0), row.Int(0, 1), row.Int(0, 2), row.Int(0, 3),
                           row.Int(0, 4), row.Int(0, 5), row.Int(0, 6), row.Int(0, 7),
                           row.Int(0, 8), row.Int(0, 9)};
}

}  // namespace convtune::db::fleet
