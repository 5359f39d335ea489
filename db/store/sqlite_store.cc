#include "db/store/sqlite_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "db/sqlite/file_util.h"
#include "db/store/environments.h"
#include "db/store/maintenance.h"
#include "db/store/rows.h"
#include "proto/base/strings.h"
#include "proto/model/violation.h"

namespace convtune::db::store {
namespace {

// 4 MiB of pages: enough to write a page that changes often only once, little
// enough to keep reading fast.
constexpr int kCheckpointFrames = 1024;
// Many tunings in one transaction, from where on their pages need more room than
// SQLite's default of 2 MB: their digests are in no order, and a page of that
// index that leaves the cache is written to the log, and read again, each time.
constexpr int64_t kManyTunings = 1000;
constexpr int64_t kCacheForMany = int64_t{96} << 20;
constexpr int64_t kCacheBytes = 2'000 << 10;
constexpr absl::Duration kThinningDelay = absl::Hours(1);  // so that a start stays quick
constexpr absl::Duration kThinningPeriod = absl::Hours(24);

absl::Status Closed(const std::string& path) {
  return absl::FailedPreconditionError(Concat(path, ": the store is closed"));
}

// True if nothing there can be written. access() also tells of a read-only
// mount, to root as well.
bool IsReadOnly(const std::string& directory, const std::string& path) {
  return access(directory.c_str(), W_OK) != 0 ||
         (access(path.c_str(), F_OK) == 0 && access(path.c_str(), W_OK) != 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(Options options) {
  if (options.state_dir.empty()) return ViolationError({"state_dir", "must not be empty"});
  const std::string& directory = options.state_dir;
  if (!options.read_only && mkdir(directory.c_str(), 0750) != 0 && errno != EEXIST) {
    return FileError(directory, "making the state directory");
  }
  if (!options.allow_network_fs) {
    ASSIGN_OR_RETURN(const sqlite::FileSystemInfo info, options.file_system_probe(directory));
    RETURN_IF_ERROR(sqlite::CheckLocalDisk(directory, info));
  }
  const std::string path = directory + "/convtune.db";
  const std::string lock_path = directory + "/convtune.lock";
  if (!options.read_only && IsReadOnly(directory, path)) {
    options.read_only = true;
    options.notice(Concat(path, ": cannot be written; results are served but not kept"));
  }
  ASSIGN_OR_RETURN(UniqueFd lock, options.read_only ? sqlite::ShareLockFile(lock_path)
                                                    : sqlite::LockFile(lock_path));
  ASSIGN_OR_RETURN(sqlite::DatabaseFile file,
                   sqlite::OpenDatabaseFile({.path = path,
                                             .clock = options.clock,
                                             .damage = options.damage,
                                             .read_only = options.read_only,
                                             .notice = options.notice}));
  ASSIGN_OR_RETURN(const int64_t version, file.reader->UserVersion());
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(options), path, std::move(lock),
                                                      std::move(file), static_cast<int>(version)));
}

SqliteStore::SqliteStore(Options options, std::string path, UniqueFd lock,
                         sqlite::DatabaseFile file, int schema_version)
    : options_(std::move(options)),
      path_(std::move(path)),
      schema_version_(schema_version),
      read_only_(file.writer == nullptr),
      reader_access_(file.reader_access),
      opened_(MarkOf(path_)),
      lock_(std::move(lock)),
      writer_(std::move(file.writer)),
      next_thinning_(options_.clock->Now() + kThinningDelay),
      reader_(std::move(file.reader)) {}

SqliteStore::~SqliteStore() = default;

absl::Status SqliteStore::Close() {
  {
    MutexLock lock(read_mutex_);
    if (reader_ == nullptr) {
      return Closed(path_);
    }
    reader_.reset();
  }
  MutexLock lock(write_mutex_);
  const bool clean = !damaged_;  // else the next start looks at all of the file
  std::unique_ptr<sqlite::Database> writer = std::move(writer_);
  if (writer == nullptr) {
    lock_ = UniqueFd();
    return absl::OkStatus();
  }
  absl::Status status = [&writer, clean]() -> absl::Status {
    ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(*writer));
    RETURN_IF_ERROR(sqlite::SetCleanShutdown(*writer, clean));
    RETURN_IF_ERROR(transaction.Commit());
    RETURN_IF_ERROR(writer->CheckpointTruncate());
    return writer->CloseAndRemoveLog();
  }();
  writer.reset();  // before the lock: nobody else may open the file while it is open
  lock_ = UniqueFd();
  return status;
}

absl::Status SqliteStore::CheckWritable() const {
  if (read_only_) {
    return absl::UnavailableError(Concat(path_, ": is read-only, nothing can be kept"));
  }
  if (writer_ == nullptr) return Closed(path_);
  if (!InPlace()) {
    // It may be there, below a folder that does not let this user look.
    std::error_code asked;
    if (!std::filesystem::exists(path_, asked) && asked) {
      return absl::UnavailableError(
          Concat(path_, ": cannot be looked at, so nothing can be kept: ", asked.message()));
    }
    return absl::UnavailableError(
        Concat(path_, ": was moved, deleted or replaced while it is open; nothing can be kept"));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::CheckReadable() const {
  return reader_ == nullptr ? Closed(path_) : absl::OkStatus();
}

absl::Status SqliteStore::CommitMutation(const Mutation& mutation) {
  ASSIGN_OR_RETURN(sqlite::Transaction transaction, sqlite::Transaction::Begin(*writer_));
  if (!marked_unclean_) {
    RETURN_IF_ERROR(sqlite::SetCleanShutdown(*writer_, false));
  }
  RETURN_IF_ERROR(mutation(*writer_));
  RETURN_IF_ERROR(transaction.Commit());
  marked_unclean_ = true;
  return absl::OkStatus();
}

absl::Status SqliteStore::Write(const Mutation& mutation) {
  MutexLock lock(write_mutex_);
  RETURN_IF_ERROR(CheckWritable());
  absl::Status status = CommitMutation(mutation);
  damaged_ = damaged_ || absl::IsDataLoss(status);
  RETURN_IF_ERROR(status);
  TidyAfterCommit();
  return absl::OkStatus();
}

void SqliteStore::TidyAfterCommit() {
  absl::Status status;
  // By the wall clock, as what it thins; the second condition is for one that was set back.
  if (const absl::Time now = options_.clock->Now();
      now >= next_thinning_ || now + kThinningPeriod < next_thinning_) {
    next_thinning_ = now + kThinningPeriod;
    status.Update(ThinSamples(*writer_, now - options_.sample_retention).status());
  }
  if (options_.max_bytes > 0) {
    status.Update(EnforceSizeCap(*writer_, options_.max_bytes));
  }
  if (writer_->wal_frames() >= kCheckpointFrames) {
    status.Update(writer_->CheckpointPassive());
  }
  if (!status.ok()) {
    options_.notice(Concat("tidying the database failed: ", status.message()));
  }
}

absl::Status SqliteStore::StoreWithOutbox(sqlite::Database& database, Environments* environments,
                                          const Tuning& tuning,
                                          const Environment& environment) const {
  ASSIGN_OR_RETURN(const int64_t environment_id,
                   StoreTuning(database, environments, tuning, environment));
  if (tuning.origin != Origin::kLocal) return absl::OkStatus();
  return Enqueue(database, environment_id, tuning.key.problem_text);
}

absl::Status SqliteStore::PutTuning(const Tuning& tuning, const Environment& environment) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    Environments environments(&database);
    return StoreWithOutbox(database, &environments, tuning, environment);
  });
}

absl::Status SqliteStore::PutTunings(const TuningSource& next) {
  int64_t stored = 0;
  absl::Status status = Write([&](sqlite::Database& database) -> absl::Status {
    Environments environments(&database);
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<TuningRecord> record, next());
      if (!record.has_value()) {
        return absl::OkStatus();
      }
      if (++stored == kManyTunings) RETURN_IF_ERROR(database.SetCacheBytes(kCacheForMany));
      RETURN_IF_ERROR(
          StoreWithOutbox(database, &environments, record->tuning, record->environment));
    }
  });
  if (stored >= kManyTunings) {
    MutexLock lock(write_mutex_);
    if (writer_ != nullptr) RETURN_IF_ERROR(writer_->SetCacheBytes(kCacheBytes));
  }
  return status;
}

absl::StatusOr<Tuning> SqliteStore::GetTuning(const TuningKey& key) {
  MutexLock lock(read_mutex_);
  RETURN_IF_ERROR(CheckReadable());
  return ReadStoredTuning(*reader_, key, &sound_environments_);
}

absl::StatusOr<int64_t> SqliteStore::DeleteTunings(const std::vector<TuningKey>& keys) {
  if (keys.empty()) {
    MutexLock lock(write_mutex_);
    RETURN_IF_ERROR(CheckWritable());
    return 0;
  }
  return WriteAndCount([&](sqlite::Database& database) -> absl::StatusOr<int64_t> {
    int64_t erased = 0;
    for (const TuningKey& key : keys) {
      ASSIGN_OR_RETURN(const int64_t rows, EraseKeyed<TuningRow>(database, key));
      erased += rows;
    }
    return erased;
  });
}

absl::Status SqliteStore::ForEachStored(const std::function<bool(StoredTuning)>& visit,
                                        const std::function<void(const std::string&)>& corrupt) {
  {
    // Without a file, on a disk that cannot be written, there is nothing else to open.
    MutexLock lock(read_mutex_);
    RETURN_IF_ERROR(CheckReadable());
    if (reader_->path() != path_) return ForEachStoredTuning(*reader_, visit, corrupt);
  }
  // A connection of its own: whoever reads single tunings does not wait for it.
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  absl::Status status = ForEachStoredTuning(*database, visit, corrupt);
  if (absl::IsDataLoss(status)) {
    MutexLock lock(write_mutex_);
    damaged_ = true;
  }
  return status;
}

absl::StatusOr<std::vector<Environment>> SqliteStore::ListEnvironments() {
  return Read([this](sqlite::Database& database) {
    return ReadEnvironmentsInUse(database, options_.notice);
  });
}

absl::Status SqliteStore::PutPin(const Pin& pin) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t id, Environments(&database).Of(pin.key.environment_text));
    return sqlite::PutRow(database, PinRow{id, pin});
  });
}

absl::Status SqliteStore::DeletePin(const TuningKey& key) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t rows, EraseKeyed<PinRow>(database, key));
    if (rows > 0) return absl::OkStatus();
    return MissingError({"pin", key.problem_text},
                        Concat("no pin of ", key.problem_text, " in ", key.environment_text));
  });
}

absl::StatusOr<std::vector<Pin>> SqliteStore::ListPins() {
  return Read(
      [this](sqlite::Database& database) { return ReadKeyed<PinRow>(database, options_.notice); });
}

absl::StatusOr<int64_t> SqliteStore::AddBan(const Ban& ban) {
  return WriteAndCount([&](sqlite::Database& database) -> absl::StatusOr<int64_t> {
    BanRow row{ban};
    ASSIGN_OR_RETURN(row.value.number, AddToMeta(database, "ban_sequence", 1));
    RETURN_IF_ERROR(sqlite::InsertRow(database, row));
    return row.value.number;
  });
}

absl::Status SqliteStore::DeleteBan(int64_t number) {
  return Write([number](sqlite::Database& database) -> absl::Status {
    RETURN_IF_ERROR(database.Run("DELETE FROM bans WHERE ban_number = ?", number));
    if (database.Changes() > 0) return absl::OkStatus();
    return MissingError({"ban", Concat("bans/", number)}, Concat("ban: there is no bans/", number));
  });
}

absl::StatusOr<std::vector<Ban>> SqliteStore::ListBans() {
  return Read([this](sqlite::Database& database) {
    return sqlite::ReadValues<BanRow>(database, options_.notice);
  });
}

absl::Status SqliteStore::PutQuarantine(const QuarantineEntry& entry) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t id, Environments(&database).Of(entry.key.environment_text));
    return sqlite::PutRow(database, QuarantineRow{id, entry});
  });
}

absl::StatusOr<std::vector<QuarantineEntry>> SqliteStore::ListQuarantine() {
  return Read([this](sqlite::Database& database) {
    return ReadKeyed<QuarantineRow>(database, options_.notice);
  });
}

absl::Status SqliteStore::DeleteQuarantine(const TuningKey& key,
                                           const std::vector<CandidateId>& candidates) {
  return Write([&](sqlite::Database& database) -> absl::Status {
    for (const CandidateId& candidate : candidates) {
      RETURN_IF_ERROR(database.Run(
          "DELETE FROM quarantine WHERE problem_text = ? AND candidate = ? AND environment_id IN "
          "(SELECT environment_id FROM environments WHERE text = ?)",
          key.problem_text, ToText(candidate), key.environment_text));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<sqlite::Database>> SqliteStore::OpenReader() {
  {
    MutexLock lock(read_mutex_);
    RETURN_IF_ERROR(CheckReadable());
  }
  return sqlite::Database::Open({.path = path_, .access = reader_access_});
}

absl::StatusOr<v1::CheckDatabaseResponse> SqliteStore::Check() {
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  return CheckDatabase(*database);
}

absl::StatusOr<int64_t> SqliteStore::Backup(const std::string& path,
                                            const std::function<bool()>& stopped) {
  ASSIGN_OR_RETURN(const std::unique_ptr<sqlite::Database> database, OpenReader());
  return BackupDatabase(*database, path, stopped);
}

absl::StatusOr<v1::CompactDatabaseResponse> SqliteStore::Compact() {
  v1::CompactDatabaseResponse compaction;
  compaction.set_bytes_before(SizeBytes());
  const absl::Time before = options_.clock->Now() - options_.sample_retention;
  MutexLock lock(write_mutex_);
  RETURN_IF_ERROR(CheckWritable());
  RETURN_IF_ERROR(CommitMutation([&](sqlite::Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t thinned, ThinSamples(database, before));
    compaction.set_thinned(thinned);
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(ReleaseFreePages(*writer_));
  const absl::Status truncated = writer_->CheckpointTruncate();
  // A reader that stays keeps the log; a later checkpoint gets to it.
  if (!truncated.ok() && !absl::IsUnavailable(truncated)) {
    return truncated;
  }
  compaction.set_bytes_after(SizeBytes());
  return compaction;
}

bool SqliteStore::InPlace() const {
  const std::optional<FileMark> found = MarkOf(path_);
  return !opened_ || (found && found->IsSameFile(*opened_));
}

int64_t SqliteStore::SizeBytes() {
  return sqlite::FileSize(path_).value_or(0) + sqlite::FileSize(path_ + "-wal").value_or(0);
}

int SqliteStore::SchemaVersion() { return schema_version_; }

}  // namespace convtune::db::store
