// Functions that deliver nodes' measurements to the fleet's database, pool them, and remove those
// that nothing needs any more.
// db/fleet/migrations/README.md describes the tables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/fleet_service.pb.h"
#include "db/fleet/names.h"
#include "db/postgres/connection.h"
#include "db/tuning_store.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db::fleet {

// Takes rows of the node's outbox in one transaction. Each may come again, in any order, alone or
// with others. Returns how many were here already. The node's current row of a problem is
// the one of the best standing, in whatever order they come. Of equals it is one that was
// measured there rather than relayed, then the newest; see migrations/0002_initial.sql, evidence.
// INVALID_ARGUMENT: a tuning breaks a rule, "field: rule"; nothing was taken.
absl::StatusOr<int64_t> Deliver(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                                const std::vector<v1::OutboxRow>& rows);

// The highest sequence that the node delivered in that epoch (0: in any); nullopt: nothing
// ever. Sequences of two epochs do not compare: a node that lost its disk counts from 1 again.
absl::StatusOr<std::optional<int64_t>> LastDelivered(postgres::Connection& postgres,
                                                     int64_t node_id, int64_t epoch);

// The SQL condition of evidence that counts, on its row `e` of evidence and `n` of nodes: it is the
// current row of a trusted node (kTrusted), and where a forgotten node came back, no later node of
// the name has measured the problem itself.
std::string EvidenceCountsSql();

// The payload of a row of evidence or pooled_payloads: the tuning without samples and provenance.
std::string WritePayload(const Tuning& tuning);
// The tuning of a payload, and the environment of its row of environments. INVALID_ARGUMENT names
// the rule that the payload breaks.
absl::StatusOr<TuningRecord> ReadPayload(const std::string& payload,
                                         const std::string& environment_text,
                                         const std::string& gpu_model);

// A NodeEvidence is the current tuning of a problem on one node.
struct NodeEvidence {
  int64_t node_id = 0;
  absl::Time receive_time;
  Tuning tuning;
  int64_t provenance_id = 0;
  Environment environment;  // with the full GPU model
  bool relayed = false;     // it was pooled before; see OutboxRow
  bool deviates = false;    // the node does; see NodeDeviation
};

// A PooledTuning is the tuning that the evidence of all nodes gives for one problem.
struct PooledTuning {
  Tuning tuning;  // ranked; receive_time of the newest as its time
  // All of the evidence, as reports read it; see db/fleet/reports.h.
  std::string report_rows;
  // Numbers of nodes. The voices measured the problem themselves, with the best standing.
  std::vector<int64_t> voices;
  std::vector<int64_t> left_out;  // of the voices, those that deviate
  // Of the voices, those that measured another speed-up over the stock choice than all voices
  // together: of the candidate that wins among all, or of the node's own winner.
  std::vector<int64_t> dissenters;
  // How many of those that are not left out find the winner the best within noise; 0 only where
  // all are left out, or no candidate won.
  int64_t agreeing = 0;
};

// A NodeDeviation counts in how many problems of an environment a node dissents from the others.
struct NodeDeviation {
  int64_t environment_id = 0;
  int64_t node_id = 0;
  std::string environment;  // its name
  std::string node;
  int64_t dissents = 0;
  int64_t shared = 0;  // problems that it measured, and on which at least two nodes agree
};
// A node that dissents in more than half of at least so many problems deviates: its evidence is
// left out wherever another's is as good.
inline constexpr int64_t kFewestShared = 5;
inline bool Deviates(int64_t dissents, int64_t shared) {
  return shared >= kFewestShared && 2 * dissents > shared;
}
// Those that deviate, by what is pooled.
absl::StatusOr<std::vector<NodeDeviation>> ListDeviating(postgres::Connection& postgres);

// A pure function of the evidence of one problem, ordered by node, at least one node's.
using PoolFunction = std::function<PooledTuning(const std::vector<NodeEvidence>&)>;

// Whether the connection's login may pool. Agents may not, since a promotion serves what is
// pooled.
absl::StatusOr<bool> MayPool(postgres::Connection& postgres);
// Pools up to `limit` keys whose evidence changed, in one transaction, leaving
// those that somebody else is at. Returns how many.
absl::StatusOr<int64_t> PoolQueued(postgres::Connection& postgres, FleetNames& names, int64_t limit,
                                   const PoolFunction& pool,
                                   const std::vector<NodeDeviation>& deviating = {});
// Queues the keys that were pooled while other nodes than these deviated.
absl::Status QueueForDeviations(postgres::Connection& postgres,
                                const std::vector<NodeDeviation>& deviating);
// Queues the keys that have evidence which counts and nothing pooled, as after a partial restore.
absl::Status QueueUnpooled(postgres::Connection& postgres);
// Keys that are queued, those that somebody is at included.
absl::StatusOr<int64_t> CountPoolQueue(postgres::Connection& postgres);

struct Thinned {
  int64_t evidence = 0;  // rows that a newer one had superseded
  int64_t tasks = 0;     // done or cancelled
  int64_t payloads = 0;  // pooled tunings that nothing refers to
};

// Removes what is older than `keep`. Current evidence, what any release refers to,
// dead tasks and pins stay, however old.
absl::StatusOr<Thinned> ThinFleet(postgres::Connection& postgres, absl::Duration keep);
// The same if nobody did within the last day; else nullopt.
absl::StatusOr<std::optional<Thinned>> ThinFleetDaily(postgres::Connection& postgres,
                                                      absl::Duration keep);

}  // namespace convtune::db::fleet
