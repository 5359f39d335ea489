// Functions that register the fleet's nodes and write their heartbeats.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/fleet/names.h"
#include "db/postgres/connection.h"
#include "proto/model/release/release.h"

namespace convtune::db::fleet {

// The SQL condition of a living node, on its row `n` of nodes; others are silent. An agent writes
// a heartbeat every ten seconds, unless --refresh says otherwise.
inline constexpr char kLiving[] = "(n.last_seen > now() - interval '1 minute')";

// The condition of a node whose evidence counts, likewise.
inline constexpr char kTrusted[] =
    "(NOT EXISTS (SELECT 1 FROM distrusts x WHERE x.node = n.name AND x.end_time IS NULL))";

// The condition of a pin or ban that holds, on its row.
inline constexpr char kActive[] =
    "(end_time IS NULL AND (expire_time IS NULL OR expire_time > now()))";

// The statement with which whoever decides what is served begins a transaction. Until it ends the
// next one waits, and then sees what it did.
inline constexpr char kReleaseLock[] =
    "SELECT pg_advisory_xact_lock(hashtextextended('convtune release', 0))";

struct NodeDevice {
  std::string name;
  std::string environment_text;
  std::string driver_version;
};

// The pins, or the bans, of the fleet that a node does not follow.
struct Unapplied {
  int64_t count = 0;
  std::string error;  // why the node does not follow the first of them
  // Of `count`, those with a FleetPin::error or FleetBan::error. For metrics: WriteHeartbeat does
  // not write it.
  int64_t refused = 0;

  void Add(const std::string& why) {
    if (count++ == 0) error = why;
  }
};

// A Heartbeat is an agent's report of its node.
struct Heartbeat {
  // Calls columns(name, field) of each field that is a column of nodes by itself.
  static void Visit(auto& heartbeat, const auto& columns) {
    columns("agent_version", heartbeat.agent_version);
    columns("daemon_version", heartbeat.daemon_version);
    columns("daemon_start_time", heartbeat.daemon_start_time);
    columns("tuning_count", heartbeat.tuning_count);
    columns("lookups", heartbeat.lookups);
    columns("hits", heartbeat.hits);
    columns("outbox_depth", heartbeat.outbox_depth);
    columns("outbox_dropped", heartbeat.outbox_dropped);
    columns("outbox_lag_seconds", heartbeat.outbox_lag);
    columns("release_number", heartbeat.release);
    columns("release_missing", heartbeat.release_missing);
    columns("release_extra", heartbeat.release_extra);
    columns("unapplied_pins", heartbeat.pins.count);
    columns("pin_error", heartbeat.pins.error);
    columns("unapplied_bans", heartbeat.bans.count);
    columns("ban_error", heartbeat.bans.error);
    columns("release_error", heartbeat.release_error);
    columns("last_error", heartbeat.last_error);
  }

  absl::Time node_time = {};  // by the node's clock
  std::string agent_version;
  std::string daemon_version;
  absl::Time daemon_start_time = {};
  int64_t tuning_count = 0;
  int64_t lookups = 0;
  int64_t hits = 0;
  int64_t outbox_depth = 0;
  int64_t outbox_dropped = 0;
  absl::Duration outbox_lag;    // for how long something has waited and nothing was delivered
  int64_t release = 0;          // that the node's programs are served; 0: none
  int64_t release_missing = 0;  // problems of the release that the node has not
  int64_t release_extra = 0;    // that it has from a fleet, and the release has not
  Unapplied pins = {};          // for the node's environments
  Unapplied bans = {};
  std::vector<int64_t> heeded_bans = {};  // of the fleet, by number: they hold on the node
  std::string release_error;              // why the node refuses the release that it should serve
  std::string last_error;
  std::vector<NodeDevice> devices = {};
  bool tunes = true;  // it takes problems that the fleet has queued
};

// The node's number; makes its row, which is the connection's login's from then on. Takes a
// lock that goes with the connection: ALREADY_EXISTS if another agent speaks for a node of that
// name. FAILED_PRECONDITION: the node is another login's.
absl::StatusOr<int64_t> RegisterNode(postgres::Connection& postgres, const std::string& name);
// The devices' environments have rows already; see FleetNames::AddEnvironments. ABORTED: the fleet
// does not know the node any more, or is another.
absl::Status WriteHeartbeat(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                            const Heartbeat& heartbeat);
// Replaces what the node wanted before, in environments that have rows already. Of a key that comes
// twice the first counts.
absl::Status WriteWanted(postgres::Connection& postgres, FleetNames& names, int64_t node_id,
                         const std::vector<WantedProblem>& wanted);
// The release of the node's last heartbeat; 0: none.
absl::StatusOr<int64_t> ReadHeededRelease(postgres::Connection& postgres, int64_t node_id);

struct NodeStatus {
  std::string name;
  absl::Duration silence;       // since the last heartbeat, by the server's clock
  bool living = false;          // kLiving
  std::string distrust_author;  // of the distrust that holds
  std::string distrust_reason;  // empty: it is trusted
  absl::Duration clock_offset;
  Heartbeat last;                    // what Visit has of it
  std::vector<std::string> devices;  // "environment name, driver"
};

struct FleetCountsStatus {
  int64_t environments = 0;
  int64_t problems = 0;
  int64_t evidence = 0;  // each node's newest
  int64_t pooled = 0;
  int64_t waiting_to_pool = 0;
  int64_t tasks_queued = 0;
  int64_t tasks_leased = 0;
  int64_t tasks_dead = 0;
  int64_t pins = 0;
  int64_t bans = 0;
};

// How far a decision has come among the nodes that it concerns.
struct Heeding {
  int64_t concerned = 0;             // nodes
  int64_t living = 0;                // of them
  std::vector<std::string> missing;  // names of living nodes that have not heeded it
  std::vector<std::string> silent;   // the same of silent ones

  int64_t heeded() const { return concerned - std::ssize(missing) - std::ssize(silent); }
};
// By number of the ban that holds; a ban concerns every node.
absl::StatusOr<std::map<int64_t, Heeding>> ReadBanHeeding(postgres::Connection& postgres);
// By number of release, of `only` that one. A release concerns the nodes with an environment that
// it changes; a canary, and one that was rolled back, those that were drawn. A rollback is heeded
// by whoever serves the canary no more.
absl::StatusOr<std::map<int64_t, Heeding>> ReadReleaseHeeding(postgres::Connection& postgres,
                                                              int64_t only = 0);
// The names that a text has with line feeds between them. A name has no control character.
std::vector<std::string> SplitNames(const std::string& names);

// The node is gone: it is counted no more, and comes back as another one. What it measured stays.
// NOT_FOUND; FAILED_PRECONDITION: it is living.
absl::Status ForgetNode(postgres::Connection& postgres, const std::string& name);
// From now on what the node delivered, and delivers, is not pooled. NOT_FOUND; ALREADY_EXISTS.
absl::Status DistrustNode(postgres::Connection& postgres, const std::string& name,
                          const std::string& author, const std::string& reason);
// Ends that. NOT_FOUND: it is not distrusted.
absl::Status TrustNode(postgres::Connection& postgres, const std::string& name,
                       const std::string& author);

// Those that are not forgotten, by name.
absl::StatusOr<std::vector<NodeStatus>> ListNodes(postgres::Connection& postgres);
absl::StatusOr<FleetCountsStatus> CountFleet(postgres::Connection& postgres);

}  // namespace convtune::db::fleet
