// A Connection is a connection to the fleet's PostgreSQL database.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct pg_conn;
struct pg_result;

namespace convtune::db::postgres {

// Parameters of one statement, in the order of $1, $2, ... Value type.
class Params {
 public:
  Params& Int(int64_t value);
  // NaN and infinities are what PostgreSQL makes of them.
  Params& Real(double value);
  Params& Bool(bool value);
  Params& Text(std::string_view value);  // no zero bytes
  Params& Bytes(std::string_view value);
  Params& Null();
  Params& MaybeInt(std::optional<int64_t> value);
  Params& MaybeReal(std::optional<double> value);
  Params& Ints(const std::vector<int64_t>& values);
  Params& Reals(const std::vector<double>& values);
  Params& Texts(const std::vector<std::string>& values);

  const std::vector<std::optional<std::string>>& values() const { return values_; }

 private:
  std::vector<std::optional<std::string>> values_;
};

// Rows of one statement. Rows and columns count from 0.
class Result {
 public:
  explicit Result(pg_result* result) : result_(result) {}
  int rows() const;
  // Rows that an INSERT, UPDATE or DELETE changed.
  int64_t changed() const;
  bool IsNull(int row, int column) const;
  std::string Text(int row, int column) const;
  int64_t Int(int row, int column) const;
  double Real(int row, int column) const;
  bool Bool(int row, int column) const;
  std::string Bytes(int row, int column) const;

 private:
  struct Clear {
    void operator()(pg_result* result) const;
  };
  std::unique_ptr<pg_result, Clear> result_;
};

// One row in PostgreSQL's binary form, as long as it is looked at. Columns count
// from 0 and are not NULL.
class BinaryRow {
 public:
  explicit BinaryRow(const pg_result* result) : result_(result) {}
  int32_t Int32(int column) const;           // integer
  std::string_view Bytes(int column) const;  // bytea, text

 private:
  const pg_result* const result_;
};

// Not thread-safe. No method waits for ever: a server that is hung, or behind a
// network that swallows what is sent, costs the connection. Errors of every method
// carry PostgreSQL's text: UNAVAILABLE the server cannot be reached, does not
// answer, or the connection is gone (ok() is then false, and stays so); ABORTED a
// serialization failure or a deadlock, to be tried again; PERMISSION_DENIED;
// ALREADY_EXISTS a unique key; RESOURCE_EXHAUSTED; DEADLINE_EXCEEDED the
// statement's timeout; FAILED_PRECONDITION the tables are not there; INTERNAL
// anything else.
class Connection {
 public:
  struct Options {
    // A connection string as libpq reads it (key=value or URI). What it does not
    // say comes from PG* variables and ~/.pgpass.
    std::string conninfo;
    // Made by `convtune-fleet migrate`; lower-case letters, digits and '_'.
    std::string schema = "convtune";
    // For each address that the string names; 2 s at least.
    absl::Duration connect_timeout = absl::Seconds(5);
    // The server ends a statement that takes longer. The connection is given up
    // where nothing is heard of it for kAnswerGrace more.
    absl::Duration statement_timeout = absl::Seconds(60);
    // The server ends a connection that asks for nothing for so long, and with it
    // the locks of a client that it can no longer hear. Zero: never.
    absl::Duration idle_timeout = absl::ZeroDuration();
    // Asked ten times a second while the server is waited for. Once it is true,
    // all that is asked from then on has kStopGrace together.
    std::function<bool()> stop = [] { return false; };
    std::string application = "convtune-fleet";
  };

  static constexpr absl::Duration kAnswerGrace = absl::Seconds(5);
  static constexpr absl::Duration kStopGrace = absl::Seconds(3);

  // INVALID_ARGUMENT names what is wrong with the options. Over TCP, where the
  // string does not say, sslmode is verify-full.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(const Options& options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Each statement is prepared once for the connection.
  absl::StatusOr<Result> Query(const std::string& sql, const Params& params = {});
  // For results that are too many to be kept: `take` is told each row as it
  // comes, and ends it all with an error of its own, which is returned; the
  // connection ends with it. The time-out begins anew with each row.
  absl::Status Stream(const std::string& sql, const Params& params,
                      const std::function<absl::Status(const BinaryRow&)>& take);
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
  const std::string& schema() const { return schema_; }

 private:
  using Clock = std::chrono::steady_clock;  // never set back
  struct Close {
    void operator()(pg_conn* connection) const;
  };
  Connection(pg_conn* connection, const Options& options)
      : connection_(connection),
        schema_(options.schema),
        answer_timeout_(absl::ToChronoMilliseconds(options.statement_timeout + kAnswerGrace)),
        stop_(options.stop) {}
  absl::Status Error(const pg_result* result) const;
  // UNAVAILABLE where the connection was lost before.
  absl::Status Usable() const;
  // The last result of what was sent, or the first error.
  absl::StatusOr<Result> Finish(bool sent);
  // Until a result can be had without waiting.
  absl::Status Await(Clock::time_point deadline);
  absl::Status WaitForSocket(int events, Clock::time_point deadline);

  const std::unique_ptr<pg_conn, Close> connection_;
  const std::string schema_;
  const std::chrono::milliseconds answer_timeout_;
  const std::function<bool()> stop_;
  Clock::time_point stop_deadline_ = Clock::time_point::max();
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
