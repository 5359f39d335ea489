// Functions that keep the fleet's queue, which shares tunings among idle nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/fleet/names.h"
#include "db/postgres/connection.h"
#include "proto/model/environment.h"

namespace convtune::db::fleet {

// Persisted: never renumber.
enum class BatchKind { kTune = 1, kVerify = 2 };

struct FleetTask {
  int64_t task_id = 0;
  int64_t token = 0;  // of this claim
  std::string fleet;  // FleetNames::fleet_id of the database in which task_id is its number
  std::string environment_text;
  std::string problem_text;
  bool force = false;  // also what the node knows already
  absl::Duration budget;
};

struct NewTask {
  std::string problem_text;
  double weight = 0;  // the greater the sooner
};

struct BatchRequest {
  BatchKind kind = BatchKind::kTune;
  std::string environment_text;
  std::string author;
  std::string reason;
  absl::Duration budget = absl::Seconds(30);
  int nodes = 0;               // that measure each problem; 0: as kNodesWantedSql
  std::vector<NewTask> tasks;  // problems that are open in another batch are left out
};

struct DeadTask {
  std::string problem_text;
  std::string environment_text;
  std::vector<std::string> reasons;  // "node: reason" of each attempt
};

struct BatchProgress {
  int64_t queued = 0;
  int64_t leased = 0;
  int64_t done = 0;
  int64_t dead = 0;
  int64_t cancelled = 0;
  // Of the queued ones, those that wait for another node than those that measured them; and of
  // these, those for which no such node of the environment is heard of.
  int64_t again = 0;
  int64_t lone = 0;
  int64_t nodes = 0;  // that have a task now

  int64_t total() const { return queued + leased + done + dead + cancelled; }
  int64_t open() const { return queued + leased; }
};

// After so many attempts that a node reports as failed, and so many that ended
// without a word, a task is dead. The second is large: whoever kills nodes says
// nothing about the problem.
inline constexpr int kMostFailures = 3;
inline constexpr int kMostLostLeases = 50;

// Returns the batch's number; 0, and nothing made, if no task is left.
absl::StatusOr<int64_t> QueueBatch(postgres::Connection& postgres, FleetNames& names,
                                   const BatchRequest& request);
// The open batches that have problems of a request, and how many of those problems are lone, as in
// BatchProgress.
struct QueuedAlready {
  std::vector<int64_t> batches;
  int64_t lone = 0;
};
absl::StatusOr<QueuedAlready> FindQueued(postgres::Connection& postgres,
                                         const BatchRequest& request);

// Queues what has to be measured again in the request's environment after an upgrade to it from the
// environment `from` of the same GPU model, or, where both are one, after a change of the driver.
// These are the problems that nodes have tuned in `from` and not yet as well in the request's
// environment, under `driver` unless that is empty. Those that programs miss most come first, then
// those that most nodes have tuned; the rest behind the first `most` is left out. So is, without
// `again`, what was queued to be verified (BatchKind::kVerify) within the last week. Sets the tasks
// of the request. Returns as QueueBatch.
absl::StatusOr<int64_t> QueueStale(postgres::Connection& postgres, FleetNames& names,
                                   const std::string& from, const std::string& driver, int64_t most,
                                   bool again, BatchRequest* request);

// QueueStale for an environment and driver that a node has come to, with a batch for each of two
// upgrades: from the newest earlier cuDNN that the fleet knows on that hardware, and, where no node
// has a newer driver, from other drivers in the same environment. Does nothing while another agent
// does it. Returns how many problems were queued.
absl::StatusOr<int64_t> QueueVerification(postgres::Connection& postgres, FleetNames& names,
                                          const Environment& environment,
                                          const std::string& driver);

// Up to `limit` tasks of the environment, the weightiest first, leased to the
// node; those of a lease that has run out, too; none to a distrusted node. Waits for no other
// claim. Where there is nothing to claim, ends the measured tasks of the environment that no
// other node could measure.
absl::StatusOr<std::vector<FleetTask>> ClaimTasks(postgres::Connection& postgres, FleetNames& names,
                                                  int64_t node_id, const std::string& environment,
                                                  int64_t limit, absl::Duration lease);

// These return false, and change nothing, if the lease is another's meanwhile, or the tables were
// made anew.

absl::StatusOr<bool> RenewTask(postgres::Connection& postgres, const FleetTask& task,
                               absl::Duration lease);
// The node has measured it. Where the task wants more nodes, or the two that measured it
// disagree, it is queued again, for a node that has not had it. A node that is distrusted meanwhile
// gives it back.
absl::StatusOr<bool> CompleteTask(postgres::Connection& postgres, const FleetTask& task);
absl::StatusOr<bool> FailTask(postgres::Connection& postgres, const FleetTask& task,
                              const std::string& reason);
// Gives it back as if it had not been claimed.
absl::StatusOr<bool> ReturnTask(postgres::Connection& postgres, const FleetTask& task);

absl::StatusOr<BatchProgress> ReadProgress(postgres::Connection& postgres, int64_t batch_id);
// Of the batch; of all where it is 0.
absl::StatusOr<std::vector<DeadTask>> ListDeadTasks(postgres::Connection& postgres,
                                                    int64_t batch_id, int64_t limit);
absl::StatusOr<int64_t> CancelBatch(postgres::Connection& postgres, int64_t batch_id);

}  // namespace convtune::db::fleet
