// The part of evidence.h that puts the nodes' evidence together.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "db/fleet/evidence.h"
#include "db/fleet/nodes.h"
#include "proto/base/status_macros.h"

namespace convtune::db::fleet {
namespace {

struct PoolKey {
  int64_t environment_id = 0;
  int64_t problem_id = 0;
};

absl::StatusOr<std::vector<NodeEvidence>> ReadEvidence(
    postgres::Connection& postgres, const PoolKey& key,
    const std::vector<NodeDeviation>& deviating) {
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query(
          absl::StrCat("SELECT e.node_id, e.receive_time, e.payload, v.text, v.gpu_model, "
                       "e.provenance_id, e.relayed, encode(e.digest, 'hex'), p.gpu_uuid FROM "
                       "evidence e JOIN environments v USING (environment_id) JOIN nodes n USING "
                       "(node_id) JOIN provenances p USING (provenance_id) "
                       "WHERE e.environment_id = $1 AND e.problem_id = $2 AND ",
                       EvidenceCountsSql(), " ORDER BY e.node_id"),
          {key.environment_id, key.problem_id}));
  std::vector<NodeEvidence> all, relayed;
  std::set<std::string> digests;
  std::map<std::string, size_t> of_gpu;
  std::optional<TuningStanding> best;
  for (const postgres::Row row : rows) {
    absl::StatusOr<TuningRecord> stored = ReadPayload(row[2], row[3], row[4]);
    // A row that breaks a rule counts for nothing.
    if (!stored.ok()) continue;
    NodeEvidence one{
        row[0], row[1], std::move(stored->tuning), row[5], std::move(stored->environment), row[6]};
    one.deviates = std::any_of(deviating.begin(), deviating.end(), [&](const NodeDeviation& node) {
      return node.environment_id == key.environment_id && node.node_id == one.node_id;
    });
    if (one.relayed) {
      // Many nodes may bring back the same; it counts once.
      if (digests.insert(row[7]).second) relayed.push_back(std::move(one));
      continue;
    }
    best = best.has_value() ? std::max(*best, StandingOf(one.tuning)) : StandingOf(one.tuning);
    // A node that was given another name, or is beside another on one GPU, is no second opinion.
    const std::string gpu(row[8]);
    const auto [other, is_first] = of_gpu.try_emplace(gpu, all.size());
    if (!gpu.empty() && !is_first) {
      const auto rank = [](const NodeEvidence& each) {
        return std::pair(StandingOf(each.tuning), each.receive_time);
      };
      NodeEvidence& kept = all[other->second];
      if (rank(kept) < rank(one)) kept = std::move(one);
      continue;
    }
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

absl::Status Write(postgres::Connection& postgres, const PoolKey& key, size_t nodes,
                   const PooledTuning& pooled) {
  const Tuning& tuning = pooled.tuning;
  const std::string payload = WritePayload(tuning);
  RETURN_IF_ERROR(
      postgres.Execute("INSERT INTO pooled_payloads (digest, payload) VALUES "
                       "(substring(sha256($1) FROM 1 FOR 16), $1) ON CONFLICT DO NOTHING",
                       {postgres::Bytes{payload}}));
  std::vector<std::string> candidates;
  std::vector<double> lows;
  for (const Candidate& candidate : tuning.candidates) {
    if (!candidate.usable()) continue;
    candidates.push_back(ToText(candidate.id));
    lows.push_back(candidate.timed() ? candidate.low_us : std::numeric_limits<double>::infinity());
  }
  std::optional<std::string> winner;
  std::optional<double> winner_us, winner_high_us;
  if (!tuning.candidates.empty() && tuning.candidates.front().usable()) {
    const Candidate& first = tuning.candidates.front();
    winner = candidates.front();
    if (first.timed()) {
      winner_us = first.median_us;
      winner_high_us = first.high_us;
    }
  }
  return postgres.Execute(
      "INSERT INTO pooled (environment_id, problem_id, winner, winner_us, winner_high_us, "
      "candidates, lows_us, node_count, evidence, report_rows, digest, voices, left_out, "
      "dissenters, agreeing) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
      "substring(sha256($11) FROM 1 FOR 16), $12, $13, $14, $15)",
      {key.environment_id, key.problem_id, winner, winner_us, winner_high_us, candidates, lows,
       nodes, tuning.evidence, postgres::Bytes{pooled.report_rows}, postgres::Bytes{payload},
       pooled.voices, pooled.left_out, pooled.dissenters, pooled.agreeing});
}

}  // namespace

std::string EvidenceCountsSql() {
  return absl::StrCat("e.current AND ", kTrusted,
                      " AND NOT EXISTS (SELECT 1 FROM evidence l JOIN nodes m USING (node_id) "
                      "WHERE l.environment_id = e.environment_id AND l.problem_id = e.problem_id "
                      "AND l.current AND NOT l.relayed AND m.name = n.name AND m.node_id > "
                      "n.node_id)");
}

absl::StatusOr<bool> MayPool(postgres::Connection& postgres) {
  return postgres.QueryValue<bool>("SELECT has_table_privilege('pooled', 'INSERT')");
}

absl::StatusOr<int64_t> PoolQueued(postgres::Connection& postgres, FleetNames& names, int64_t limit,
                                   const PoolFunction& pool,
                                   const std::vector<NodeDeviation>& deviating) {
  ASSIGN_OR_RETURN(postgres::Transaction transaction, names.Begin());
  // A row that a delivery has just touched is locked until it commits; one that
  // is taken here and touched meanwhile is made anew. So no change is missed.
  ASSIGN_OR_RETURN(
      const postgres::Result queued,
      postgres.Query("DELETE FROM pool_queue q USING (SELECT environment_id, problem_id FROM "
                     "pool_queue ORDER BY queue_time LIMIT $1 FOR UPDATE SKIP LOCKED) t WHERE "
                     "q.environment_id = t.environment_id AND q.problem_id = t.problem_id "
                     "RETURNING q.environment_id, q.problem_id",
                     {limit}));
  for (const postgres::Row row : queued) {
    const PoolKey key{row[0], row[1]};
    ASSIGN_OR_RETURN(const std::vector<NodeEvidence> evidence,
                     ReadEvidence(postgres, key, deviating));
    RETURN_IF_ERROR(
        postgres.Execute("DELETE FROM pooled WHERE environment_id = $1 AND problem_id = $2",
                         {key.environment_id, key.problem_id}));
    if (!evidence.empty()) {
      RETURN_IF_ERROR(Write(postgres, key, evidence.size(), pool(evidence)));
    }
  }
  RETURN_IF_ERROR(transaction.Commit());
  return queued.size();
}

absl::Status QueueForDeviations(postgres::Connection& postgres,
                                const std::vector<NodeDeviation>& deviating) {
  std::vector<int64_t> environments, nodes;
  for (const NodeDeviation& each : deviating) {
    environments.push_back(each.environment_id);
    nodes.push_back(each.node_id);
  }
  return postgres.Execute(
      "SELECT queue_pooling(array_agg(environment_id), array_agg(problem_id)) FROM pooled p WHERE "
      "(left_out <> '{}' OR voices && $2::integer[]) AND left_out <> ARRAY(SELECT v FROM "
      "unnest(voices) AS v JOIN unnest($1::integer[], $2::integer[]) AS d(environment_id, node_id) "
      "ON d.node_id = v AND d.environment_id = p.environment_id ORDER BY v)",
      {environments, nodes});
}

absl::Status QueueUnpooled(postgres::Connection& postgres) {
  // What is queued may be held by somebody, who would be waited for.
  return postgres.Execute(absl::StrCat(
      "SELECT queue_pooling(array_agg(environment_id), array_agg(problem_id)) FROM evidence e JOIN "
      "nodes n USING (node_id) WHERE current AND ",
      kTrusted,
      " AND NOT EXISTS (SELECT 1 FROM pooled p WHERE p.environment_id = e.environment_id AND "
      "p.problem_id = e.problem_id) AND NOT EXISTS (SELECT 1 FROM pool_queue q WHERE "
      "q.environment_id = e.environment_id AND q.problem_id = e.problem_id)"));
}

absl::StatusOr<std::vector<NodeDeviation>> ListDeviating(postgres::Connection& postgres) {
  // Where no two voices agree nobody knows which one is wrong. `agreeing` does not count nodes that
  // are left out, so by it a node would deviate no more as soon as it is left out, and count again.
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      postgres.Query("SELECT s.*, e.name, n.name FROM (SELECT environment_id, v AS node_id, "
                     "COUNT(*) FILTER (WHERE v = ANY(dissenters)), COUNT(*) FROM pooled, "
                     "unnest(voices) AS v WHERE cardinality(voices) - cardinality(dissenters) > 1 "
                     "GROUP BY 1, 2) s JOIN environments e USING "
                     "(environment_id) JOIN nodes n USING (node_id) ORDER BY n.name, e.name"));
  std::vector<NodeDeviation> deviating;
  for (const postgres::Row row : rows) {
    NodeDeviation one{row[0], row[1], row[4], row[5], row[2], row[3]};
    if (Deviates(one.dissents, one.shared)) deviating.push_back(std::move(one));
  }
  return deviating;
}

absl::StatusOr<int64_t> CountPoolQueue(postgres::Connection& postgres) {
  return postgres.QueryValue<int64_t>("SELECT COUNT(*) FROM pool_queue");
}

}  // namespace convtune::db::fleet
