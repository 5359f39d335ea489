// A SqliteStore is the daemon's store: one SQLite file on a local disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/fleet_service.pb.h"
#include "db/sqlite/state_folder.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"

namespace convtune::db::store {

// Thread-safe. One connection writes and checkpoints; readers have their own
// and see the last commit. Beside what TuningStore says, methods give
// DATA_LOSS where the file or a row is damaged, UNAVAILABLE for a mutation of
// a read-only store, and FAILED_PRECONDITION after Close().
class SqliteStore : public TuningStore {
 public:
  struct Options {
    // Made, with mode 0750, if it does not exist; its parent must.
    std::string state_dir;
    const Clock* clock = nullptr;  // required; outlives the store
    // Accept a network file system at the user's own risk.
    bool allow_network_fs = false;
    // Soft limit of the file, without its log; 0: none. See README.md.
    int64_t max_bytes = 0;
    // Age from which samples are thinned: by Compact(), and by a
    // mutation an hour after opening and then every day.
    absl::Duration sample_retention = absl::Hours(30 * 24);
    // Rows of the outbox, about 300 bytes each; beyond it the oldest go, counted.
    int64_t outbox_limit = 100'000;
    // Never write. A state directory that cannot be written implies it.
    bool read_only = false;
    // The reason for which the file is put aside before it is opened: the message of a
    // DATA_LOSS error of a store that was open before. Empty: the file is not put aside.
    std::string damage;
    // Told of what an operator should know: a damaged file that was put aside,
    // a read-only store, damaged rows that lists left out. Thread-safe; must not call the store.
    std::function<void(const std::string&)> notice = [](const std::string&) {};
    sqlite::FileSystemProbe file_system_probe = sqlite::ProbeFileSystem;
  };

  // The file is `convtune.db`, the lock `convtune.lock`. INVALID_ARGUMENT names
  // the option; FAILED_PRECONDITION: another daemon has the lock, the disk is
  // not local, or the file is not ours or newer than this program.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(Options options);
  // Without Close() the next Open() checks the file.
  ~SqliteStore() override = default;

  // Checkpoints and marks the file as left in order. Every later call gives
  // FAILED_PRECONDITION. Errors lose nothing that was acknowledged.
  virtual absl::Status Close() = 0;

  // The outbox has the tunings that wait for the fleet, and the node's place in the fleet's
  // releases. Its rows come into being in PutTuning and PutTunings, in the transaction of the
  // tuning itself, for tunings of origin LOCAL.

  // The oldest rows: at most `limit`, and no more than fit into `bytes`, but one at least.
  virtual absl::StatusOr<v1::ReadOutboxResponse> ReadOutbox(size_t limit, size_t bytes) = 0;
  // Drops these rows; those that are not there (any more) are ignored.
  virtual absl::Status AckOutbox(const google::protobuf::RepeatedPtrField<v1::OutboxId>& ids) = 0;
  // Puts every tuning of origin LOCAL in, which is not in already, and, for a fleet
  // that lost them, of origin FLEET. Returns how many.
  virtual absl::StatusOr<int64_t> RequeueOutbox(bool include_fleet) = 0;
  // Without `agent_silence`.
  virtual absl::StatusOr<v1::FleetState> GetOutboxStatus() = 0;
  virtual absl::Status SetFleetRelease(int64_t release) = 0;

  // True if mutations are refused until the next Open().
  virtual bool read_only() const = 0;
};

}  // namespace convtune::db::store
