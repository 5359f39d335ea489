#include "db/sqlite/database_file.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/base/unique_fd.h"

namespace convtune::db::sqlite {
namespace {

// Between a database's path and the time when it was put aside.
constexpr char kPutAside[] = ".corrupt-";
constexpr std::array<const char*, 3> kSuffixes = {"", "-wal", "-shm"};

// Fails with ALREADY_EXISTS rather than replace `to`. Nobody but this process makes such files.
absl::Status RenameNoReplace(const std::string& from, const std::string& to) {
  if (access(to.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(Concat(to, ": exists already"));
  }
  return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : FileError(from, "renaming");
}

absl::Status SyncFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError(path, "opening");
  return fsync(fd.get()) == 0 ? absl::OkStatus() : FileError(path, "fsync");
}

// An empty file is as good as none.
enum class FileKind { kAbsent, kNotADatabase, kForeign, kOurs };

// Reads the header without SQLite, which could change a file that is not ours.
// REQUIRES: this process has no connection to the file, since closing it here
// would drop SQLite's locks.
absl::StatusOr<FileKind> InspectFile(const std::string& path) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  constexpr size_t kApplicationIdOffset = 68;
  std::array<char, 100> header{};
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) {
      return FileKind::kAbsent;
    }
    return FileError(path, "opening");
  }
  const ssize_t size = pread(fd.get(), header.data(), header.size(), 0);
  if (size < 0) {
    return FileError(path, "reading");
  }
  if (size == 0) {
    return FileKind::kAbsent;
  }
  if (size < static_cast<ssize_t>(header.size()) ||
      std::string_view(header.data(), kMagic.size()) != kMagic) {
    return FileKind::kNotADatabase;
  }
  uint32_t application_id = 0;  // big-endian, as all of the header
  std::memcpy(&application_id, header.data() + kApplicationIdOffset, sizeof application_id);
  return be32toh(application_id) == static_cast<uint32_t>(Database::kApplicationId)
             ? FileKind::kOurs
             : FileKind::kForeign;
}

// FAILED_PRECONDITION if the file is newer than `migrations` and its compatible version says that
// this program cannot use it.
absl::Status CheckVersion(const Database& database, std::span<const Migration> migrations) {
  const int known = LatestVersion(migrations);
  ASSIGN_OR_RETURN(const int64_t version, database.UserVersion());
  if (version <= known) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t compatible,
                   database.QueryInt("SELECT value FROM meta WHERE key = 'compatible_version'"));
  if (compatible <= known) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(Concat(
      database.path(), ": has schema version ", version, " and needs a program that knows version ",
      compatible, "; this one knows version ", known, "; the file was left as it is"));
}

absl::Status CheckUnlessClean(const Database& database) {
  ASSIGN_OR_RETURN(const int64_t version, database.UserVersion());
  if (version == 0) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t clean,
                   database.QueryInt("SELECT value FROM meta WHERE key = 'clean_shutdown'"));
  return clean == 1 ? absl::OkStatus() : database.QuickCheck();
}

// What a sound file of ours never gives: a table or row that is not there, or
// one that is there already.
bool SaysDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInternal(status);
}

// Where the file must be migrated, copies it first, since a migration cannot be undone, and tells
// options.notice the copy's path. An earlier copy of the same schema version stays in its place. A
// file that needs no migration is not copied. On an error no migration may follow.
absl::Status KeepCopy(const DatabaseFileOptions& options, const Database& database) {
  ASSIGN_OR_RETURN(const int64_t version, database.UserVersion());
  const int latest = LatestVersion(options.migrations);
  if (version == 0 || version >= latest) return absl::OkStatus();
  const std::string copy = Concat(options.path, ".schema-", version);
  const absl::Status copied = CopyDatabaseFile(database, copy);
  const bool was_there = absl::IsAlreadyExists(copied);
  if (!copied.ok() && !was_there) {
    const std::string message =
        Concat(options.path, ": has schema version ", version, " and must be migrated to ", latest,
               ", but the copy to keep of it cannot be written, so it is left as it is: ",
               copied.message());
    if (absl::IsResourceExhausted(copied)) return absl::ResourceExhaustedError(message);
    if (absl::IsDataLoss(copied)) return absl::DataLossError(message);
    return absl::UnavailableError(message);
  }
  options.notice(Concat("it is migrated from schema version ", version, " to ", latest, "; ",
                        was_there ? "an earlier copy of that version was there already and stays: "
                                  : "a copy as it was is kept: ",
                        copy));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Database>> OpenWriter(const DatabaseFileOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open({.path = options.path}));
  RETURN_IF_ERROR(database->Initialize());
  RETURN_IF_ERROR(CheckVersion(*database, options.migrations));
  RETURN_IF_ERROR(database->EnableWal());
  RETURN_IF_ERROR(CheckUnlessClean(*database));
  RETURN_IF_ERROR(KeepCopy(options, *database));
  RETURN_IF_ERROR(Migrate(*database, options.migrations));
  return database;
}

absl::StatusOr<DatabaseFile> OpenForReading(const DatabaseFileOptions& options) {
  const std::string& path = options.path;
  DatabaseFile file;
  // Without a log to read, nothing need be created beside the file.
  file.reader_access =
      BytesOf(path + "-wal") == 0 ? Database::Access::kImmutable : Database::Access::kReadOnly;
  ASSIGN_OR_RETURN(file.reader, Database::Open({.path = path, .access = file.reader_access}));
  RETURN_IF_ERROR(CheckVersion(*file.reader, options.migrations));
  ASSIGN_OR_RETURN(const int64_t version, file.reader->UserVersion());
  if (const int latest = LatestVersion(options.migrations); version < latest) {
    return absl::UnavailableError(Concat(path, ": has schema version ", version,
                                         " and must be migrated to ", latest,
                                         ", which needs a disk that can be written"));
  }
  RETURN_IF_ERROR(CheckUnlessClean(*file.reader));
  return file;
}

// For a disk that cannot be written and has no database: one without rows, in
// memory, that is only read.
absl::StatusOr<DatabaseFile> OpenWithoutFile(const DatabaseFileOptions& options) {
  DatabaseFile file;
  ASSIGN_OR_RETURN(file.reader, Database::Open({.path = ":memory:"}));
  RETURN_IF_ERROR(file.reader->Initialize());
  RETURN_IF_ERROR(Migrate(*file.reader, options.migrations));
  return file;
}

// Renames what there is of the file and its log. Never replaces anything.
absl::Status PutAside(const DatabaseFileOptions& options, const std::string& why) {
  const std::string stamp =
      absl::FormatTime("%Y%m%dT%H%M%SZ", options.clock->Now(), absl::UTCTimeZone());
  const std::string base = Concat(options.path, kPutAside, stamp);
  std::string target = base;
  const auto taken = [&target] {
    for (const char* suffix : kSuffixes) {
      if (access((target + suffix).c_str(), F_OK) == 0) {
        return true;
      }
    }
    return false;
  };
  for (int n = 2; taken(); ++n) {
    target = Concat(base, ".", n);
  }
  for (const char* suffix : kSuffixes) {
    const std::string from = options.path + suffix;
    if (access(from.c_str(), F_OK) == 0) {
      RETURN_IF_ERROR(RenameNoReplace(from, target + suffix));
    }
  }
  RETURN_IF_ERROR(SyncFolderOf(options.path));
  options.notice(Concat("the database is damaged (", why, "); it was kept as ", target,
                        " and a new one was started"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Database>> OpenOrReplace(const DatabaseFileOptions& options,
                                                        FileKind kind) {
  if (kind == FileKind::kNotADatabase) {
    RETURN_IF_ERROR(PutAside(options, "it is no SQLite file"));
  } else if (kind == FileKind::kOurs && !options.damage.empty()) {
    RETURN_IF_ERROR(PutAside(options, options.damage));
  } else if (kind == FileKind::kAbsent && BytesOf(options.path + "-wal") > 0) {
    // SQLite would delete a log without its file.
    RETURN_IF_ERROR(PutAside(options, "there is a log without its file"));
  }
  absl::StatusOr<std::unique_ptr<Database>> writer = OpenWriter(options);
  if (SaysDamage(writer.status())) {
    RETURN_IF_ERROR(PutAside(options, std::string(writer.status().message())));
    writer = OpenWriter(options);
  }
  return writer;
}

}  // namespace

absl::StatusOr<DatabaseFile> OpenDatabaseFile(const DatabaseFileOptions& options) {
  ASSIGN_OR_RETURN(const FileKind kind, InspectFile(options.path));
  if (kind == FileKind::kForeign) {
    return absl::FailedPreconditionError(
        Concat(options.path,
               ": is an SQLite database of another application; it was left "
               "as it is"));
  }
  if (options.read_only) {
    if (kind == FileKind::kAbsent) return OpenWithoutFile(options);
    if (kind != FileKind::kOurs) {
      return absl::UnavailableError(
          Concat(options.path, ": is no SQLite file, and cannot be replaced where it is"));
    }
    return OpenForReading(options);
  }
  absl::StatusOr<std::unique_ptr<Database>> writer = OpenOrReplace(options, kind);
  if (!writer.ok()) {
    const bool disk_refused =
        absl::IsUnavailable(writer.status()) || absl::IsResourceExhausted(writer.status());
    if (kind != FileKind::kOurs || !disk_refused) {
      return writer.status();
    }
    absl::StatusOr<DatabaseFile> file = OpenForReading(options);
    if (!file.ok()) {
      return writer.status();
    }
    options.notice(
        Concat("the database can only be read until the next start: ", writer.status().message()));
    return file;
  }
  DatabaseFile file;
  file.writer = *std::move(writer);
  ASSIGN_OR_RETURN(file.reader,
                   Database::Open({.path = options.path, .access = file.reader_access}));
  return file;
}

std::vector<std::string> ListPutAside(const std::string& path) {
  std::vector<std::string> found;
  const std::string name = std::filesystem::path(path).filename().string() + kPutAside;
  std::error_code error;
  for (std::filesystem::directory_iterator at(std::filesystem::path(path).parent_path(), error),
       end;
       !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(name)) found.push_back(at->path().string());
  }
  std::ranges::sort(found);
  return found;
}

absl::Status CopyDatabaseFile(
    const Database& database, const std::string& path,
    const std::function<absl::Status(const std::string& partial)>& check) {
  if (MarkOf(path).has_value()) return absl::AlreadyExistsError(Concat(path, ": exists already"));
  struct stat of_database {};
  if (stat(database.path().c_str(), &of_database) != 0) {
    return FileError(database.path(), "reading");
  }
  const std::string partial = Concat(path, ".partial-", getpid());
  const absl::Cleanup remove = [&partial] {
    unlink(partial.c_str());
    unlink((partial + "-journal").c_str());  // SQLite's, where it fails
  };
  // What a copy that was killed left behind under the same process id.
  unlink(partial.c_str());
  // SQLite would make it as the umask has it; an empty file it takes.
  {
    const UniqueFd fd(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid()) return FileError(partial, "making");
    if (fchmod(fd.get(), of_database.st_mode & 0777) != 0) {
      return FileError(partial, "chmod");
    }
  }
  ASSIGN_OR_RETURN(Statement statement, database.Prepare("VACUUM INTO ?"));
  statement.Bind(partial);
  RETURN_IF_ERROR(statement.Run());
  RETURN_IF_ERROR(SyncFile(partial));
  if (check) RETURN_IF_ERROR(check(partial));
  RETURN_IF_ERROR(RenameNoReplace(partial, path));
  return SyncFolderOf(path);
}

absl::Status Migrate(Database& database, std::span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const int64_t version, database.UserVersion());
  for (const Migration& migration : migrations) {
    if (migration.version <= version) {
      continue;
    }
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    RETURN_IF_ERROR(database.Execute(migration.sql));
    RETURN_IF_ERROR(database.SetUserVersion(migration.version));
    RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

}  // namespace convtune::db::sqlite
