// An OutboxStore keeps the tunings that wait for the fleet on a node, and the node's
// place in the fleet's releases. An interface, so that engines can be exchanged and
// failures injected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/fleet_service.pb.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db {

// An OutboxId identifies a delivery. Sequences grow within an epoch; each start of the daemon
// has an epoch of its own, at random, so that no pair ever stands for two
// contents, whatever backup the daemon was restored from.
struct OutboxId {
  int64_t epoch = 0;
  int64_t sequence = 0;
  friend bool operator==(const OutboxId&, const OutboxId&) = default;
};

struct OutboxEntry {
  OutboxId id;
  Tuning tuning;  // without samples
  Environment environment;
};

struct OutboxPage {
  std::vector<OutboxEntry> entries;  // in the order in which they were written
  // Rows of this page that stand for nothing (any more): their tuning was
  // deleted, or is damaged. To be acknowledged with the rest.
  std::vector<OutboxId> void_ids;
  bool more = false;
};

// Thread-safe. Mutations are durable and whole, and fail as TuningStore's. Rows
// come into being in TuningStore's PutTuning and PutTunings, in the transaction
// of the tuning itself, for tunings of origin LOCAL.
class OutboxStore {
 public:
  virtual ~OutboxStore() = default;

  // The oldest `limit` rows.
  virtual absl::StatusOr<OutboxPage> ReadOutbox(size_t limit) = 0;
  // Drops these rows; those that are not there (any more) are ignored.
  virtual absl::Status AckOutbox(const std::vector<OutboxId>& ids) = 0;
  // Puts every tuning of origin LOCAL in, which is not in already, and, for a fleet
  // that lost them, of origin FLEET. Returns how many.
  virtual absl::StatusOr<int64_t> RequeueOutbox(bool include_fleet) = 0;
  // True if the key's tuning waits.
  virtual absl::StatusOr<bool> IsInOutbox(const TuningKey& key) = 0;
  // Without `agent_silence`.
  virtual absl::StatusOr<v1::FleetState> GetOutboxStatus() = 0;
  virtual absl::Status SetFleetRelease(int64_t release) = 0;
};

}  // namespace convtune::db
