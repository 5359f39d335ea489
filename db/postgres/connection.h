// A Connection is a connection to the fleet's PostgreSQL database.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

struct pg_conn;
struct pg_result;

namespace convtune::db::postgres {

// Bytes of a bytea, as a parameter.
struct Bytes {
  std::string_view bytes;
};

// A Param is a parameter of a statement: the n-th is $n. Value type.
struct Param {
  Param(std::same_as<bool> auto value) : text(value ? "t" : "f") {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) Param(T value) : text(std::to_string(value)) {}  // NOLINT
  template <typename T>
  requires std::is_enum_v<T> Param(T value) : Param(static_cast<int64_t>(value)) {}  // NOLINT
  // NaN and infinities are PostgreSQL's.
  Param(double value);  // NOLINT
  // No zero bytes.
  Param(const std::convertible_to<std::string_view> auto& value)  // NOLINT
      : text(std::string_view(value)) {}
  Param(Bytes value);                      // NOLINT
  Param(absl::Time value);                 // NOLINT: of a timestamptz
  Param(absl::Duration value);             // NOLINT: seconds, of a float8
  Param(const std::vector<Param>& array);  // NOLINT: without NULL
  template <typename T>
  Param(const std::vector<T>& array)  // NOLINT
      : Param(std::vector<Param>(array.begin(), array.end())) {}
  template <typename T>
  Param(const std::optional<T>& value)  // NOLINT
      : text(value.has_value() ? Param(*value).text : std::nullopt) {}

  std::optional<std::string> text;  // as PostgreSQL reads it; nullopt: NULL
};
using Params = std::vector<Param>;

// What a Cell becomes, exactly: numbers, texts (and the bytes of a bytea), enumerations by their
// number, a timestamptz, and a time in seconds.
template <typename T>
concept CellValue = std::is_enum_v<T> || std::same_as<T, std::string> || std::same_as<T, bool> ||
    std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, double> ||
    std::same_as<T, absl::Time> || std::same_as<T, absl::Duration>;

// A Cell is one value of a result, as long as that lives: it becomes what the reader wants of
// it. NULL becomes 0, false or an empty text; ask Maybe where it means something. Value type.
class Cell {
 public:
  Cell(const pg_result* result, int row, int column)
      : result_(result), row_(row), column_(column) {}
  bool is_null() const;
  // As PostgreSQL sent it, for rows of Connection::Pages: the content of a text or bytea.
  std::string_view bytes() const;
  // nullopt: NULL.
  template <CellValue T>
  std::optional<T> Maybe() const {
    return is_null() ? std::nullopt : std::optional<T>(static_cast<T>(*this));
  }
  template <CellValue T>
  operator T() const {  // NOLINT
    if constexpr (std::same_as<T, std::string>) {
      return Text();
    } else if constexpr (std::same_as<T, bool>) {
      return *Value() == 't';
    } else if constexpr (std::same_as<T, double>) {
      return Real();
    } else if constexpr (std::same_as<T, absl::Time>) {
      return Time();
    } else if constexpr (std::same_as<T, absl::Duration>) {
      return absl::Seconds(Real());
    } else {
      return static_cast<T>(Int());
    }
  }

 private:
  const char* Value() const;
  std::string Text() const;
  int64_t Int() const;
  double Real() const;
  absl::Time Time() const;

  const pg_result* result_;
  int row_;
  int column_;
};

// A Row is one row of a result, as long as that lives. Columns count from 0. Value type.
class Row {
 public:
  Row(const pg_result* result, int row) : result_(result), row_(row) {}
  Cell operator[](int column) const { return {result_, row_, column}; }

 private:
  const pg_result* result_;
  int row_;
};

// A Result has the rows of one statement. They count from 0.
class Result {
 public:
  explicit Result(pg_result* result);
  int size() const { return static_cast<int>(rows_.size()); }
  bool empty() const { return rows_.empty(); }
  Row operator[](int row) const { return {result_.get(), row}; }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  // The first column of every row.
  template <typename T>
  std::vector<T> Column() const {
    std::vector<T> values;
    for (const Row row : rows_) values.push_back(row[0]);
    return values;
  }
  // Number of rows that an INSERT, UPDATE or DELETE changed.
  int64_t changed() const;

 private:
  struct Clear {
    void operator()(pg_result* result) const;
  };
  std::unique_ptr<pg_result, Clear> result_;
  std::vector<Row> rows_;
};

// Not thread-safe. No method waits for ever: a server that is hung, or behind a
// network that swallows what is sent, costs the connection. Errors of every method
// carry PostgreSQL's text: UNAVAILABLE the server cannot be reached, does not
// answer, or the connection is gone (ok() is then false, and stays so), or the server has a fault
// that passes, whatever it was asked: it only reads, or cannot read a file; ABORTED a
// serialization failure or a deadlock, to be tried again; PERMISSION_DENIED;
// ALREADY_EXISTS a unique key; RESOURCE_EXHAUSTED; DEADLINE_EXCEEDED the
// time-out of a statement, or of its lock; FAILED_PRECONDITION the tables are not there; INTERNAL
// anything else.
//
// Statements rely on what the connection set, prepared, locked and listens to before, so a pooler
// in between must keep it on one of the server's: FAILED_PRECONDITION says "use session mode".
class Connection {
 public:
  struct Options {
    // A connection string as libpq reads it (key=value or URI). What it does not
    // say comes from PG* variables and ~/.pgpass.
    std::string conninfo;
    // Made by `convtune-fleet migrate`; lower-case letters, digits and '_'.
    std::string schema = "convtune";
    // For each address that the string names. Less than 2 s, and zero, are 2 s.
    absl::Duration connect_timeout = absl::Seconds(5);
    // The server ends a statement that takes longer. The connection is given up
    // where nothing is heard of it for kAnswerGrace more. Half of it is the time for a lock. Zero:
    // the server has no time-out, and the connection is given up after kAnswerGrace.
    absl::Duration statement_timeout = absl::Seconds(60);
    // The server ends a connection that asks for nothing for so long, and with it
    // the locks of a client that it can no longer hear. Zero: never.
    absl::Duration idle_timeout = absl::ZeroDuration();
    // Asked ten times a second while the server is waited for. Once it is true,
    // all that is asked from then on has kStopGrace together.
    std::function<bool()> stop = [] { return false; };
    // Told, in a line, whose lock a statement waits for that has no answer after kSayAfter. A
    // second connection asks that, which takes 2 s at most for each address, and kAnswerGrace for
    // each of three answers. nullptr: nobody is told or asked.
    std::function<void(const std::string&)> say = nullptr;
  };

  static constexpr absl::Duration kAnswerGrace = absl::Seconds(5);
  static constexpr absl::Duration kStopGrace = absl::Seconds(3);
  static constexpr absl::Duration kSayAfter = absl::Seconds(2);

  // INVALID_ARGUMENT names what is wrong with the options. Over TCP, where the
  // string does not say, sslmode is verify-full.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(const Options& options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Each statement is prepared once for the connection.
  absl::StatusOr<Result> Query(const std::string& sql, const Params& params = {});
  // Of a statement that always gives a row: its first value.
  template <typename T>
  absl::StatusOr<T> QueryValue(const std::string& sql, const Params& params = {}) {
    ASSIGN_OR_RETURN(const Result result, Query(sql, params));
    return static_cast<T>(result[0][0]);
  }
  // How many rows the statement changed.
  absl::StatusOr<int64_t> Change(const std::string& sql, const Params& params = {}) {
    ASSIGN_OR_RETURN(const Result result, Query(sql, params));
    return result.changed();
  }
  // For rows that are too many to be kept, within a transaction. The statement gives texts and
  // byteas alone (a number as a text). `take` is told its rows in pages of so many, each of which
  // has the time of a statement, and ends it all with an error of its own, which is returned. It
  // may ask the connection for anything but pages.
  absl::Status Pages(const std::string& sql, const Params& params, int page_size,
                     const std::function<absl::Status(const Result&)>& take);
  // For statements that give no rows; several may be given, without parameters.
  absl::Status Execute(const std::string& sql);
  // As Query, for one whose rows are not wanted.
  absl::Status Execute(const std::string& sql, const Params& params) {
    return Query(sql, params).status();
  }

  // False once the connection is lost.
  bool ok() const;
  // Waits for a notification of LISTEN, at most so long. True if one came.
  absl::StatusOr<bool> WaitForNotification(absl::Duration timeout);
  const std::string& schema() const { return options_.schema; }

 private:
  struct Close {
    void operator()(pg_conn* connection) const;
  };
  Connection(pg_conn* connection, const Options& options)
      : connection_(connection), options_(options) {}
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Options& options);
  // A second connection, for a short question about this one.
  absl::StatusOr<std::unique_ptr<Connection>> OpenBeside() const;
  // Whom the statement waits for; empty: nobody. An error: nobody can be asked.
  absl::StatusOr<std::string> WaitsFor() const;
  absl::Duration AnswerTimeout() const { return options_.statement_timeout + kAnswerGrace; }
  absl::Status Error(const pg_result* result) const;
  // UNAVAILABLE where the connection was lost before.
  absl::Status Usable() const;
  // The last result of what was sent, or the first error.
  absl::StatusOr<Result> Finish(bool sent);
  // Until a result can be had without waiting.
  absl::Status Await(SteadyTime deadline);
  absl::Status WaitForSocket(int events, SteadyTime deadline);

  const std::unique_ptr<pg_conn, Close> connection_;
  const Options options_;
  int process_ = 0;        // of the server, when it was connected
  std::string waits_for_;  // what is known of the last statement
  SteadyTime stop_deadline_ = SteadyTime::InfiniteFuture();
  bool lost_ = false;  // given up; libpq does not know it
  std::set<std::string, std::less<>> prepared_;
};

// A name of PostgreSQL's that needs no quotes: 1 to 63 lower-case letters, digits and
// '_', not beginning with a digit.
bool IsName(const std::string& name);
inline constexpr char kNameRule[] =
    "1 to 63 lower-case letters, digits and '_', not beginning with a digit";
// Follows an error about rights.
inline constexpr char kHowToGrant[] =
    " (`convtune-fleet migrate --agent-role ROLE --operator-role ROLE` grants them to roles)";

// From Begin to Commit; rolls back when it goes out of scope without one. Must
// not outlive its connection.
class Transaction {
 public:
  static absl::StatusOr<Transaction> Begin(Connection& postgres);
  // Every statement reads one state of the database.
  static absl::StatusOr<Transaction> BeginRead(Connection& postgres);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  absl::Status Commit();

 private:
  explicit Transaction(Connection* postgres) : postgres_(postgres) {}
  Connection* postgres_;  // null: over
};

}  // namespace convtune::db::postgres
