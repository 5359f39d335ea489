// A Database is one connection to an SQLite file. It sets the PRAGMAs of the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/status_macros.h"

struct sqlite3;
struct sqlite3_stmt;

namespace convtune::db::sqlite {

class Database;

struct Blob {
  std::string_view bytes;
};

// A value of one of SQLite's types; nullptr: NULL.
using Value = std::variant<std::nullptr_t, int64_t, double, std::string_view, Blob>;

// A prepared statement. At its end its Database keeps what was compiled, for the next Statement
// with the same text. Not thread-safe; must not outlive its Database.
class Statement {
 public:
  Statement(Statement&&) = default;
  Statement& operator=(Statement&&) = default;

  // `index` counts from 1. A value that cannot be bound (out of memory, too
  // long) makes the next Step fail. Text and blobs are copied. SQLite has no NaN: it is bound as
  // NULL.
  void BindValue(int index, const Value& value);
  // Binds integers and texts from the first on.
  template <typename... Values>
  Statement& Bind(const Values&... values) {
    int index = 0;
    (BindOne(++index, values), ...);
    return *this;
  }

  // True: there is a row. False: the end. Errors as Database::Error().
  absl::StatusOr<bool> Step();
  // Steps to the end and resets, ready for the next values.
  absl::Status Run();
  void Reset();
  // `column` counts from 0, after Step() gave a row. Views are valid until the
  // next Step or Reset.
  bool IsNull(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  // A text, or the bytes of a blob; of a number its text.
  std::string_view Text(int column) const;

 private:
  friend class Database;
  struct GiveBack {
    const Database* database;
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(const Database* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement, GiveBack{database}) {}
  template <typename Value>
  void BindOne(int index, const Value& value) {
    if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      BindValue(index, static_cast<int64_t>(value));
    } else {
      BindValue(index, std::string_view(value));
    }
  }

  const Database* database_;
  std::unique_ptr<sqlite3_stmt, GiveBack> statement_;
  int bind_error_ = 0;
};

// Not thread-safe: one thread at a time.
//
// Errors of every method name the file and carry SQLite's text:
// RESOURCE_EXHAUSTED the disk is full; UNAVAILABLE it cannot be read or
// written, is read-only, or another connection holds a lock; DATA_LOSS the
// file is damaged or no database; CANCELLED see InterruptWhen; INTERNAL anything else.
class Database {
 public:
  // "CVTN": what tells our files from other SQLite files.
  static constexpr int32_t kApplicationId = 0x4356544E;

  enum class Access {
    kReadWrite,  // creates the file
    kReadOnly,   // still needs -shm, which it may create
    // Reads the file as it is and creates nothing. The caller knows that there
    // is no -wal with content and that nobody writes.
    kImmutable,
  };
  struct Options {
    std::string path;
    Access access = Access::kReadWrite;
    absl::Duration busy_timeout = absl::Seconds(5);
  };

  // Durable (synchronous=FULL), foreign keys on, untrusted schema, no memory
  // map, no checkpoint but Checkpoint(): neither at commit nor at close.
  // Changes nothing in the file; reads nothing of it either. SQL has the function
  // row_checksum(TABLE, COLUMN...), the checksum of a row as README.md has it.
  static absl::StatusOr<std::unique_ptr<Database>> Open(Options options);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Gives a file without content our application_id and incremental vacuum;
  // leaves any other as it is.
  absl::Status Initialize();
  // Switches the file to a write-ahead log; lasting.
  absl::Status EnableWal();

  // Runs statements that give no rows of interest.
  absl::Status Execute(const std::string& sql);
  // Runs one statement that gives no rows of interest, with these values (Statement::Bind).
  template <typename... Values>
  absl::Status Run(std::string_view sql, const Values&... values) const {
    ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    return statement.Bind(values...).Run();
  }
  // Compiling takes several times as long as running a short statement: those
  // with the same text use one that was compiled before, if it is free.
  absl::StatusOr<Statement> Prepare(std::string_view sql) const;
  // Calls `visit(const Statement&)` at each row that the statement gives with these values.
  template <typename Visit, typename... Values>
  absl::Status ForEachRow(std::string_view sql, const Visit& visit, const Values&... values) const {
    ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    statement.Bind(values...);
    while (true) {
      ASSIGN_OR_RETURN(const bool more, statement.Step());
      if (!more) return absl::OkStatus();
      visit(statement);
    }
  }
  // The first column of the first row; NOT_FOUND without one.
  template <typename... Values>
  absl::StatusOr<int64_t> QueryInt(std::string_view sql, const Values&... values) const {
    ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    return FirstInt(statement.Bind(values...), sql);
  }
  // Rows that the last statement changed.
  int64_t Changes() const;

  absl::StatusOr<int64_t> UserVersion() const;
  absl::Status SetUserVersion(int version);

  // PRAGMA quick_check of the file or, by name, of a table and its indexes;
  // DATA_LOSS with the first finding.
  absl::Status QuickCheck(std::string_view table = {}) const;
  // Pages of the file as of the last commit, without those that are free.
  absl::StatusOr<int64_t> UsedBytes() const;

  // From now on a statement during which `stopped` becomes true ends with CANCELLED. An empty
  // function ends that.
  void InterruptWhen(const std::function<bool()>& stopped);

  // Memory for pages of the file, in use or not; what is more is freed.
  absl::Status SetCacheBytes(int64_t bytes);

  // Frames in the write-ahead log after this connection's last commit; where a checkpoint came
  // later, the frames that it could not copy.
  int wal_frames() const { return wal_frames_; }
  // Copies the log into the file: what it can without waiting for readers, or, with `truncate`,
  // everything, and empties the log; UNAVAILABLE then if readers stay.
  absl::Status Checkpoint(bool truncate);

  // Ends the transaction that is open, if one is. For Transaction alone.
  void RollBack();
  // Closes and, as the last connection to it, removes the log, which must be
  // checkpointed. The object is then unusable.
  absl::Status CloseAndRemoveLog();

  const std::string& path() const { return options_.path; }
  // The status for SQLite's result code `rc`; `action` says what was done.
  absl::Status Error(int rc, std::string_view action) const;

 private:
  friend class Statement;
  struct CloseHandle {
    void operator()(sqlite3* handle) const;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using IdleStatement = std::unique_ptr<sqlite3_stmt, Finalize>;

  explicit Database(Options options) : options_(std::move(options)) {}
  static int OnCommit(void* self, sqlite3* handle, const char* name, int frames);
  absl::StatusOr<int64_t> FirstInt(Statement& statement, std::string_view sql) const;
  void TakeBack(sqlite3_stmt* statement) const;

  const Options options_;
  std::unique_ptr<sqlite3, CloseHandle> handle_;
  mutable absl::flat_hash_map<std::string, IdleStatement> idle_;  // by text
  int wal_frames_ = 0;
  std::function<bool()> stopped_;
};

// From Begin to Commit; rolls back when it goes out of scope without one. Not thread-safe; must not
// outlive its Database.
class Transaction {
 public:
  // Takes the write lock at once, so that a lock that is not free fails here.
  static absl::StatusOr<Transaction> Begin(Database& database);
  // Every statement reads one state of the file. There is nothing to commit.
  static absl::StatusOr<Transaction> BeginRead(Database& database);

  // OK: durable. Otherwise everything was rolled back.
  absl::Status Commit();

 private:
  struct RollBack {
    void operator()(Database* database) const { database->RollBack(); }
  };
  explicit Transaction(Database* database) : database_(database) {}

  std::unique_ptr<Database, RollBack> database_;  // null: over
};

}  // namespace convtune::db::sqlite
