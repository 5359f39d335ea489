// A SqliteStore is the daemon's store: one SQLite file on a local disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/fleet_service.pb.h"
#include "db/release_store.h"
#include "db/sqlite/database_file.h"
#include "db/sqlite/state_folder.h"
#include "db/store/rows.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::store {

// Thread-safe. One connection writes and checkpoints; readers have their own
// and see the last commit. Beside what TuningStore says, methods give
// DATA_LOSS where the file or a row is damaged, UNAVAILABLE for a mutation of
// a read-only store, and FAILED_PRECONDITION after Close().
class SqliteStore : public TuningStore, public ReleaseStore {
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
  ~SqliteStore() override;

  // Checkpoints and marks the file as left in order. Every later call gives
  // FAILED_PRECONDITION. Errors lose nothing that was acknowledged.
  absl::Status Close();

  absl::Status PutTuning(const Tuning& tuning, const Environment& environment) override;
  absl::Status PutTunings(const TuningSource& next) override;
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override;
  absl::StatusOr<int64_t> DeleteTunings(const std::vector<TuningKey>& keys) override;
  absl::Status ForEachStored(const std::function<bool(StoredTuning)>& visit,
                             const std::function<void(const std::string&)>& corrupt) override;
  absl::StatusOr<std::vector<Environment>> ListEnvironments() override;
  absl::Status PutPin(const Pin& pin) override;
  absl::Status DeletePin(const TuningKey& key) override;
  absl::StatusOr<std::vector<Pin>> ListPins() override;
  absl::StatusOr<int64_t> AddBan(const Ban& ban) override;
  absl::Status DeleteBan(int64_t number) override;
  absl::StatusOr<std::vector<Ban>> ListBans() override;
  absl::Status PutQuarantine(const QuarantineEntry& entry) override;
  absl::StatusOr<std::vector<QuarantineEntry>> ListQuarantine() override;
  absl::Status DeleteQuarantine(const TuningKey& key,
                                const std::vector<CandidateId>& candidates) override;
  absl::StatusOr<v1::CheckDatabaseResponse> Check() override;
  absl::StatusOr<int64_t> Backup(const std::string& path,
                                 const std::function<bool()>& stopped) override;
  absl::StatusOr<v1::CompactDatabaseResponse> Compact() override;
  bool InPlace() const override;
  int64_t SizeBytes() override;
  int SchemaVersion() override;

  absl::StatusOr<std::vector<Release>> ListReleases() override;
  absl::Status PutRelease(const Release& release,
                          const std::vector<Portfolio>& portfolios) override;
  absl::StatusOr<Portfolio> GetPortfolio(const TuningKey& key, int64_t release) override;
  absl::Status ForEachPortfolio(const std::string& environment_text, int64_t release,
                                const std::function<void(Portfolio)>& visit,
                                const std::function<void(const std::string&)>& corrupt) override;
  absl::StatusOr<int64_t> ThinPortfolios(int64_t oldest) override;
  absl::Status CheckServed() override;
  absl::StatusOr<bool> CarriesOver() override;
  absl::Status SetCarryOver(bool carry_over) override;
  absl::Status UpdateWanted(const std::vector<WantedProblem>& put,
                            const std::vector<TuningKey>& drop) override;
  absl::StatusOr<std::vector<WantedProblem>> ListWanted() override;

  // The outbox has the tunings that wait for the fleet, and the node's place in the fleet's
  // releases. Its rows come into being in PutTuning and PutTunings, in the transaction of the
  // tuning itself, for tunings of origin LOCAL.

  // The oldest `limit` rows.
  absl::StatusOr<OutboxPage> ReadOutbox(size_t limit);
  // Drops these rows; those that are not there (any more) are ignored.
  absl::Status AckOutbox(const google::protobuf::RepeatedPtrField<v1::OutboxId>& ids);
  // Puts every tuning of origin LOCAL in, which is not in already, and, for a fleet
  // that lost them, of origin FLEET. Returns how many.
  absl::StatusOr<int64_t> RequeueOutbox(bool include_fleet);
  // True if the key's tuning waits.
  absl::StatusOr<bool> IsInOutbox(const TuningKey& key);
  // Without `agent_silence`.
  absl::StatusOr<v1::FleetState> GetOutboxStatus();
  absl::Status SetFleetRelease(int64_t release);

  // True if mutations are refused until the next Open().
  bool read_only() const { return read_only_; }

 private:
  using Mutation = std::function<absl::Status(sqlite::Database&)>;

  SqliteStore(Options options, std::string path, UniqueFd lock, sqlite::DatabaseFile file,
              int schema_version);
  static int64_t NewEpoch();
  // With its row in the outbox, if it was made here.
  absl::Status StoreWithOutbox(sqlite::Database& database, Environments* environments,
                               const Tuning& tuning, const Environment& environment) const;
  // Puts the key into the outbox, in place of an older row of it, with the next sequence. Where
  // more rows are there than the limit, the oldest goes and is counted.
  absl::Status Enqueue(sqlite::Database& database, int64_t environment_id,
                       const std::string& problem_text) const;
  // Runs `mutation` in a transaction and commits it.
  absl::Status Write(const Mutation& mutation) EXCLUDES(write_mutex_);
  // The same of a mutation that gives a number.
  template <typename CountingMutation>
  absl::StatusOr<int64_t> WriteAndCount(const CountingMutation& mutation) EXCLUDES(write_mutex_) {
    absl::StatusOr<int64_t> number;
    RETURN_IF_ERROR(Write([&](sqlite::Database& database) -> absl::Status {
      number = mutation(database);
      return number.status();
    }));
    return number;
  }
  // Runs `query` on the connection of short reads.
  template <typename Query>
  std::invoke_result_t<Query, sqlite::Database&> Read(const Query& query) EXCLUDES(read_mutex_) {
    MutexLock lock(read_mutex_);
    RETURN_IF_ERROR(CheckReadable());
    return query(*reader_);
  }
  absl::Status CommitMutation(const Mutation& mutation) REQUIRES(write_mutex_);
  // Checkpoint and size cap: what fails here is tried again after the next
  // commit, and loses nothing.
  void TidyAfterCommit() REQUIRES(write_mutex_);
  absl::Status CheckWritable() const REQUIRES(write_mutex_);
  absl::Status CheckReadable() const REQUIRES(read_mutex_);
  // A connection of its own for what takes long.
  absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenReader() EXCLUDES(read_mutex_);

  const Options options_;
  const std::string path_;
  const int schema_version_;
  const int64_t epoch_ = NewEpoch();
  const bool read_only_;
  const sqlite::Database::Access reader_access_;
  const std::optional<FileMark> opened_;
  const std::optional<FileMark> opened_log_;  // of the write-ahead log
  UniqueFd lock_ GUARDED_BY(write_mutex_);    // outlives the connections
  Mutex write_mutex_;
  std::unique_ptr<sqlite::Database> writer_ GUARDED_BY(write_mutex_);
  bool marked_unclean_ GUARDED_BY(write_mutex_) = false;
  bool damaged_ GUARDED_BY(write_mutex_) = false;  // a mutation, or reading all, said so
  absl::Time next_thinning_ GUARDED_BY(write_mutex_);
  Mutex read_mutex_;
  std::unique_ptr<sqlite::Database> reader_ GUARDED_BY(read_mutex_);
  SoundEnvironments sound_environments_ GUARDED_BY(read_mutex_);  // of reader_
};

}  // namespace convtune::db::store
