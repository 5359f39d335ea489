// The part of evidence.h that puts the nodes' evidence together.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "db/fleet/evidence.h"
#include "db/fleet/floats.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

struct PoolKey {
  int64_t environment_id = 0;
  int64_t problem_id = 0;
};

absl::StatusOr<std::vector<NodeEvidence>> ReadEvidence(postgres::Connection& postgres,
                                                       const PoolKey& key) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT e.node_id, (EXTRACT(EPOCH FROM e.receive_time) * 1000000)::bigint, "
                     "p.payload, v.text, v.gpu_model, e.provenance_id, e.relayed, "
                     "encode(e.digest, 'hex') FROM evidence e "
                     "JOIN evidence_payloads p USING (evidence_id) "
                     "JOIN environments v USING (environment_id) "
                     "WHERE e.environment_id = $1 AND e.problem_id = $2 AND e.current "
                     "ORDER BY e.node_id",
                     postgres::Params().Int(key.environment_id).Int(key.problem_id)));
  std::vector<NodeEvidence> all, relayed;
  std::set<std::string> digests;
  std::optional<TuningStanding> best;
  for (int row = 0; row < rows.rows(); ++row) {
    std::optional<StoredEvidence> stored =
        ParseEvidence(rows.Bytes(row, 2), rows.Text(row, 3), rows.Text(row, 4));
    // A row that breaks a rule counts for nothing.
    if (!stored.has_value()) continue;
    NodeEvidence one{rows.Int(row, 0), absl::FromUnixMicros(rows.Int(row, 1)),
                     std::move(stored->tuning), rows.Int(row, 5), std::move(stored->environment)};
    if (rows.Bool(row, 6)) {
      // Many nodes may bring back the same; it counts once.
      if (digests.insert(rows.Text(row, 7)).second) relayed.push_back(std::move(one));
      continue;
    }
    best = best.has_value() ? std::max(*best, StandingOf(one.tuning)) : StandingOf(one.tuning);
    all.push_back(std::move(one));
  }
  // A tuning that was pooled before counts until a node has measured as well itself.
  for (NodeEvidence& one : relayed) {
    if (!best.has_value() || *best < StandingOf(one.tuning)) all.push_back(std::move(one));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.node_id < b.node_id; });
  return all;
}

absl::Status WriteCandidates(postgres::Connection& postgres, FleetNames& names, const PoolKey& key,
                             const PooledTuning& pooled) {
  std::vector<int64_t> ids, positions, statuses, nodes, samples, workspaces, numerical, behavior;
  std::vector<double> medians, lows, highs;
  for (size_t i = 0; i < pooled.tuning.candidates.size() && i < 32'767; ++i) {
    const Candidate& candidate = pooled.tuning.candidates[i];
    ASSIGN_OR_RETURN(const int64_t id, names.Candidate(ToText(candidate.id)));
    ids.push_back(id);
    positions.push_back(static_cast<int64_t>(i));
    statuses.push_back(static_cast<int64_t>(candidate.status));
    nodes.push_back(pooled.node_counts.at(i));
    samples.push_back(candidate.sample_count);
    workspaces.push_back(candidate.workspace_bytes);
    numerical.push_back(candidate.numerical_notes);
    behavior.push_back(candidate.behavior_notes);
    medians.push_back(AsFloat(candidate.median_us));
    lows.push_back(AsFloat(candidate.low_us));
    highs.push_back(AsFloat(candidate.high_us));
  }
  RETURN_IF_ERROR(
      postgres.Execute("DELETE FROM pooled_candidates WHERE environment_id = $1 AND "
                       "problem_id = $2",
                       postgres::Params().Int(key.environment_id).Int(key.problem_id)));
  return postgres.Execute(
      "INSERT INTO pooled_candidates (environment_id, problem_id, candidate_id, position, "
      "status, node_count, sample_count, median_us, low_us, high_us, workspace_bytes, "
      "numerical_notes, behavior_notes) SELECT $1, $2, * FROM "
      "unnest($3::integer[], $4::smallint[], $5::smallint[], $6::integer[], $7::bigint[], "
      "$8::real[], $9::real[], $10::real[], $11::bigint[], $12::integer[], "
      "$13::integer[])",
      postgres::Params()
          .Int(key.environment_id)
          .Int(key.problem_id)
          .Ints(ids)
          .Ints(positions)
          .Ints(statuses)
          .Ints(nodes)
          .Ints(samples)
          .Reals(medians)
          .Reals(lows)
          .Reals(highs)
          .Ints(workspaces)
          .Ints(numerical)
          .Ints(behavior));
}

// Nobody says anything of the key any more.
absl::Status Remove(postgres::Connection& postgres, const PoolKey& key) {
  for (const char* const table : {"pooled", "report_groups"}) {
    RETURN_IF_ERROR(
        postgres.Execute(absl::StrCat("DELETE FROM ", table,
                                      " WHERE environment_id = $1 AND "
                                      "problem_id = $2"),
                         postgres::Params().Int(key.environment_id).Int(key.problem_id)));
  }
  return absl::OkStatus();
}

absl::Status Write(postgres::Connection& postgres, FleetNames& names, const PoolKey& key,
                   size_t nodes, const PooledTuning& pooled) {
  const std::string payload =
      bundle::ToBundleTuning(pooled.tuning, 1, /*with_samples=*/false).SerializeAsString();
  RETURN_IF_ERROR(
      postgres.Execute("INSERT INTO pooled_payloads (digest, payload) VALUES "
                       "(substring(sha256($1) FROM 1 FOR 16), $1) ON CONFLICT DO NOTHING",
                       postgres::Params().Bytes(payload)));
  int64_t samples = 0;
  for (const Candidate& candidate : pooled.tuning.candidates) samples += candidate.sample_count;
  postgres::Params params;
  params.Int(key.environment_id).Int(key.problem_id);
  RETURN_IF_ERROR(AddChoice(pooled.tuning, pooled.winner, names, &params));
  RETURN_IF_ERROR(AddChoice(pooled.tuning, pooled.stock, names, &params));
  params.Int(static_cast<int64_t>(nodes))
      .Int(pooled.disagreeing_nodes)
      .Int(samples)
      .Int(static_cast<int64_t>(pooled.tuning.evidence))
      .Int(static_cast<int64_t>(std::min<size_t>(pooled.tuning.candidates.size(), 32'767)))
      .Bytes(payload);
  RETURN_IF_ERROR(postgres.Execute(
      "INSERT INTO pooled (environment_id, problem_id, winner_id, winner_us, "
      "winner_low_us, winner_high_us, stock_id, stock_us, stock_low_us, stock_high_us, "
      "node_count, disagreeing_nodes, sample_count, evidence, candidate_count, digest) "
      "VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,"
      "substring(sha256($16) FROM 1 FOR 16)) ON CONFLICT (environment_id, problem_id) "
      "DO UPDATE SET winner_id = EXCLUDED.winner_id, winner_us = EXCLUDED.winner_us, "
      "winner_low_us = EXCLUDED.winner_low_us, "
      "winner_high_us = EXCLUDED.winner_high_us, stock_id = EXCLUDED.stock_id, "
      "stock_us = EXCLUDED.stock_us, stock_low_us = EXCLUDED.stock_low_us, "
      "stock_high_us = EXCLUDED.stock_high_us, node_count = EXCLUDED.node_count, "
      "disagreeing_nodes = EXCLUDED.disagreeing_nodes, "
      "sample_count = EXCLUDED.sample_count, evidence = EXCLUDED.evidence, "
      "candidate_count = EXCLUDED.candidate_count, digest = EXCLUDED.digest, "
      "pool_time = now()",
      params));
  RETURN_IF_ERROR(postgres.Execute(
      "INSERT INTO report_groups (environment_id, problem_id, row_count, rows) VALUES "
      "($1, $2, $3, $4) ON CONFLICT (environment_id, problem_id) DO UPDATE SET "
      "row_count = EXCLUDED.row_count, rows = EXCLUDED.rows",
      postgres::Params()
          .Int(key.environment_id)
          .Int(key.problem_id)
          .Int(static_cast<int64_t>(nodes))
          .Bytes(pooled.report_rows)));
  return WriteCandidates(postgres, names, key, pooled);
}

}  // namespace

absl::StatusOr<int64_t> PoolQueued(postgres::Connection& postgres, FleetNames& names, int64_t limit,
                                   const PoolFunction& pool) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, postgres::Transaction::Begin(postgres));
  RETURN_IF_ERROR(names.CheckFleet());
  // A row that a delivery has just touched is locked until it commits; one that
  // is taken here and touched meanwhile is made anew. So no change is missed.
  ASSIGN_OR_RETURN(
      const postgres::Result queued,
      postgres.Query("DELETE FROM pool_queue q USING (SELECT environment_id, problem_id FROM "
                     "pool_queue ORDER BY queue_time LIMIT $1 FOR UPDATE SKIP LOCKED) t WHERE "
                     "q.environment_id = t.environment_id AND q.problem_id = t.problem_id "
                     "RETURNING q.environment_id, q.problem_id",
                     postgres::Params().Int(limit)));
  for (int row = 0; row < queued.rows(); ++row) {
    const PoolKey key{queued.Int(row, 0), queued.Int(row, 1)};
    ASSIGN_OR_RETURN(const std::vector<NodeEvidence> evidence, ReadEvidence(postgres, key));
    if (evidence.empty()) {
      RETURN_IF_ERROR(Remove(postgres, key));
      continue;
    }
    RETURN_IF_ERROR(Write(postgres, names, key, evidence.size(), pool(evidence)));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return queued.rows();
}

absl::StatusOr<int64_t> CountPoolQueue(postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const postgres::Result count, postgres.Query("SELECT COUNT(*) FROM pool_queue"));
  return count.Int(0, 0);
}

}  // namespace convtune::db::fleet
