#include "db/sqlite/database.h"

#include <sqlite3.h>

#include <bit>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/environment.h"

namespace convtune::db::sqlite {
namespace {

constexpr size_t kMostIdleStatements = 64;

// wal_autocheckpoint=0: SQLite 3.40 can damage a file when two connections
// checkpoint, so only Checkpoint() does, and only the store's writer calls it.
// mmap_size=0: a mapped file that somebody cuts short kills the process.
constexpr char kConnectionPragmas[] =
    "PRAGMA foreign_keys=ON;"
    "PRAGMA trusted_schema=OFF;"
    "PRAGMA cell_size_check=ON;"
    "PRAGMA temp_store=MEMORY;"
    "PRAGMA mmap_size=0;"
    "PRAGMA wal_autocheckpoint=0;";

// These read the file, so they wait until it is known to be ours.
constexpr char kFilePragmas[] =
    "PRAGMA synchronous=FULL;"
    "PRAGMA journal_size_limit=16777216;";

absl::StatusCode CodeOf(int rc) {
  switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:  // never a sign of damage
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL:
    case SQLITE_PERM:
      return absl::StatusCode::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_INTERRUPT:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string ImmutableUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      absl::StrAppendFormat(&uri, "%%%02x", static_cast<unsigned char>(c));
    } else {
      uri.push_back(c);
    }
  }
  return uri + "?immutable=1";
}

// What a row's checksum is of: each value with a tag for its type and, where the type does not
// give it, a length, so that no two rows encode alike.
void RowChecksum(sqlite3_context* context, int count, sqlite3_value** values) {
  thread_local std::string bytes;  // one row after another needs memory once
  bytes.clear();
  // A tag, then 8 bytes, then those whose number they are.
  const auto add = [](char tag, uint64_t bits, const void* content = nullptr) {
    bytes.push_back(tag);
    AppendLittleEndian(bits, 8, &bytes);
    if (content != nullptr) bytes.append(static_cast<const char*>(content), bits);
  };
  for (sqlite3_value* const value : std::span(values, static_cast<size_t>(count))) {
    const auto size = [value] { return static_cast<uint64_t>(sqlite3_value_bytes(value)); };
    switch (sqlite3_value_type(value)) {
      case SQLITE_INTEGER:
        add('i', static_cast<uint64_t>(sqlite3_value_int64(value)));
        break;
      case SQLITE_FLOAT:  // -0.0 reads back as 0.0
        add('r', std::bit_cast<uint64_t>(sqlite3_value_double(value) + 0.0));
        break;
      case SQLITE_TEXT:
        add('t', size(), sqlite3_value_text(value));
        break;
      case SQLITE_BLOB:
        add('b', size(), sqlite3_value_blob(value));
        break;
      default:
        bytes.push_back('n');
    }
  }
  sqlite3_result_int64(context, static_cast<int64_t>(Checksum64(bytes)));
}

}  // namespace

void Statement::GiveBack::operator()(sqlite3_stmt* statement) const {
  database->TakeBack(statement);
}

void Statement::BindValue(int index, const Value& value) {
  sqlite3_stmt* const statement = statement_.get();
  const auto bind = [&](const auto& bound) {
    using T = std::decay_t<decltype(bound)>;
    if constexpr (std::is_same_v<T, int64_t>) {
      return sqlite3_bind_int64(statement, index, bound);
    } else if constexpr (std::is_same_v<T, double>) {
      return sqlite3_bind_double(statement, index, bound);
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      // A null pointer would bind NULL instead of the empty text.
      return sqlite3_bind_text64(statement, index, bound.empty() ? "" : bound.data(), bound.size(),
                                 SQLITE_TRANSIENT, SQLITE_UTF8);
    } else if constexpr (std::is_same_v<T, sqlite::Blob>) {
      return sqlite3_bind_blob64(statement, index, bound.bytes.empty() ? "" : bound.bytes.data(),
                                 bound.bytes.size(), SQLITE_TRANSIENT);
    } else {
      return sqlite3_bind_null(statement, index);
    }
  };
  const int rc = std::visit(bind, value);
  if (rc != SQLITE_OK && bind_error_ == SQLITE_OK) bind_error_ = rc;
}

absl::StatusOr<bool> Statement::Step() {
  if (bind_error_ != SQLITE_OK) {
    return database_->Error(bind_error_, "binding a value");
  }
  const int rc = sqlite3_step(statement_.get());
  if (rc == SQLITE_ROW) {
    return true;
  }
  if (rc == SQLITE_DONE) {
    return false;
  }
  absl::Status error = database_->Error(rc, sqlite3_sql(statement_.get()));
  sqlite3_reset(statement_.get());
  return error;
}

absl::Status Statement::Run() {
  bool row = true;
  while (row) {
    ASSIGN_OR_RETURN(row, Step());
  }
  Reset();
  return absl::OkStatus();
}

void Statement::Reset() {
  // Repeats the error of the last step, which Step has reported already.
  sqlite3_reset(statement_.get());
  bind_error_ = SQLITE_OK;
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::Real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string_view Statement::Text(int column) const {
  // It gives the bytes of a text too, and the text of a number.
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  if (bytes == nullptr) return {};
  return {static_cast<const char*>(bytes),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

void Database::CloseHandle::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }

absl::StatusOr<std::unique_ptr<Database>> Database::Open(Options options) {
  std::unique_ptr<Database> database(new Database(std::move(options)));
  const Options& opened = database->options_;
  std::string name = opened.path;
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  switch (opened.access) {
    case Access::kReadWrite:
      flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
      break;
    case Access::kReadOnly:
      flags |= SQLITE_OPEN_READONLY;
      break;
    case Access::kImmutable:
      flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
      name = ImmutableUri(name);
      break;
  }
  sqlite3* handle = nullptr;
  const int rc = sqlite3_open_v2(name.c_str(), &handle, flags, nullptr);
  database->handle_.reset(handle);
  if (rc != SQLITE_OK) {
    return database->Error(rc, "opening");
  }
  sqlite3_busy_timeout(handle, static_cast<int>(absl::ToInt64Milliseconds(opened.busy_timeout)));
  sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_create_function(handle, "row_checksum", -1,
                          SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                          &RowChecksum, nullptr, nullptr);
  RETURN_IF_ERROR(database->Execute(kConnectionPragmas));
  // After wal_autocheckpoint, which shares its hook and would remove it.
  sqlite3_wal_hook(handle, &Database::OnCommit, database.get());
  return database;
}

int Database::OnCommit(void* self, sqlite3* /*handle*/, const char* /*name*/, int frames) {
  static_cast<Database*>(self)->wal_frames_ = frames;
  return SQLITE_OK;
}

absl::Status Database::Initialize() {
  ASSIGN_OR_RETURN(const int64_t pages, QueryInt("PRAGMA page_count"));
  if (pages == 0) {
    // Before the switch to a log, so that the file's own header says whose it
    // is from its first byte on.
    RETURN_IF_ERROR(Execute("PRAGMA auto_vacuum=INCREMENTAL"));
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(*this));
    RETURN_IF_ERROR(Execute(Concat("PRAGMA application_id=", kApplicationId)));
    RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

absl::Status Database::EnableWal() {
  ASSIGN_OR_RETURN(Statement statement, Prepare("PRAGMA journal_mode=WAL"));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row || statement.Text(0) != "wal") {
    return absl::UnavailableError(
        Concat(path(), ": a write-ahead log is not possible, the journal mode stays ",
               row ? statement.Text(0) : "unknown"));
  }
  return Execute(kFilePragmas);
}

absl::Status Database::Execute(const std::string& sql) {
  const int rc = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return rc == SQLITE_OK ? absl::OkStatus() : Error(rc, sql);
}

void Database::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

void Database::TakeBack(sqlite3_stmt* statement) const {
  IdleStatement idle(statement);
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  const char* text = sqlite3_sql(statement);
  if (text != nullptr && idle_.size() < kMostIdleStatements) {
    idle_.try_emplace(text, std::move(idle));
  }
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) const {
  if (const auto found = idle_.find(absl::string_view(sql.data(), sql.size()));
      found != idle_.end()) {
    sqlite3_stmt* const idle = found->second.release();
    idle_.erase(found);
    return Statement(this, idle);
  }
  sqlite3_stmt* statement = nullptr;
  const int rc = sqlite3_prepare_v3(handle_.get(), sql.data(), static_cast<int>(sql.size()),
                                    SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (rc != SQLITE_OK) {
    return Error(rc, sql);
  }
  return Statement(this, statement);
}

absl::StatusOr<int64_t> Database::FirstInt(Statement& statement, std::string_view sql) const {
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) {
    return absl::NotFoundError(Concat(path(), ": no row: ", sql));
  }
  return statement.Int(0);
}

int64_t Database::Changes() const { return sqlite3_changes64(handle_.get()); }

absl::StatusOr<int64_t> Database::UserVersion() const { return QueryInt("PRAGMA user_version"); }

void Database::InterruptWhen(const std::function<bool()>& stopped) {
  constexpr int kInstructions = 10'000;  // some milliseconds
  stopped_ = stopped;
  sqlite3_progress_handler(
      handle_.get(), stopped_ ? kInstructions : 0,
      [](void* self) { return static_cast<Database*>(self)->stopped_() ? 1 : 0; }, this);
}

absl::Status Database::SetUserVersion(int version) {
  return Execute(Concat("PRAGMA user_version=", version));
}

absl::Status Database::QuickCheck(std::string_view table) const {
  ASSIGN_OR_RETURN(Statement statement,
                   Prepare(Concat("PRAGMA quick_check(", table.empty() ? "1" : table, ")")));
  ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row || statement.Text(0) != "ok") {
    return absl::DataLossError(Concat(path(), ": quick_check: ", statement.Text(0)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Database::UsedBytes() const {
  ASSIGN_OR_RETURN(const int64_t pages, QueryInt("PRAGMA page_count"));
  ASSIGN_OR_RETURN(const int64_t free, QueryInt("PRAGMA freelist_count"));
  ASSIGN_OR_RETURN(const int64_t page_size, QueryInt("PRAGMA page_size"));
  return (pages - free) * page_size;
}

absl::Status Database::SetCacheBytes(int64_t bytes) {
  // A negative number is in KiB.
  RETURN_IF_ERROR(Execute(Concat("PRAGMA cache_size=", -(bytes >> 10))));
  sqlite3_db_release_memory(handle_.get());
  return absl::OkStatus();
}

absl::Status Database::Checkpoint(bool truncate) {
  int log_frames = 0;
  int copied = 0;
  const int rc = sqlite3_wal_checkpoint_v2(
      handle_.get(), "main", truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE,
      &log_frames, &copied);
  if (rc != SQLITE_OK) {
    return Error(rc, "checkpoint");
  }
  wal_frames_ = log_frames - copied;
  return absl::OkStatus();
}

void Database::RollBack() {
  // Some errors end the transaction by themselves.
  if (sqlite3_get_autocommit(handle_.get()) == 0) static_cast<void>(Execute("ROLLBACK"));
}

absl::Status Database::CloseAndRemoveLog() {
  idle_.clear();
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  const int rc = sqlite3_close(handle_.get());
  if (rc != SQLITE_OK) {
    return Error(rc, "closing");
  }
  static_cast<void>(handle_.release());
  return absl::OkStatus();
}

absl::Status Database::Error(int rc, std::string_view action) const {
  std::string text = sqlite3_errstr(rc);
  if (handle_ != nullptr && sqlite3_extended_errcode(handle_.get()) == rc) {
    text = sqlite3_errmsg(handle_.get());
  }
  constexpr size_t kLongest = 200;
  return absl::Status(CodeOf(rc), Concat(path(), ": ", text, " (SQLite result ", rc, "; ",
                                         action.substr(0, kLongest), ")"));
}

absl::StatusOr<Transaction> Transaction::Begin(Database& database) {
  RETURN_IF_ERROR(database.Run("BEGIN IMMEDIATE"));
  return Transaction(&database);
}

absl::StatusOr<Transaction> Transaction::BeginRead(Database& database) {
  RETURN_IF_ERROR(database.Run("BEGIN"));
  return Transaction(&database);
}

absl::Status Transaction::Commit() {
  // A refused COMMIT leaves the transaction open; the destructor ends it.
  RETURN_IF_ERROR(database_->Run("COMMIT"));
  static_cast<void>(database_.release());
  return absl::OkStatus();
}

}  // namespace convtune::db::sqlite
