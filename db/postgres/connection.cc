#include "db/postgres/connection.h"

#include <libpq-fe.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/base/poll_until.h"
#include "proto/base/status_macros.h"

namespace convtune::db::postgres {
namespace {

constexpr int kBinary = 1;     // a format of values
constexpr Oid kByteaOid = 17;  // pg_type.oid of bytea
// A timestamptz; Connect sets the time zone and the style.
constexpr char kTimeFormat[] = "%Y-%m-%d %H:%M:%E*S%Ez";

constexpr char kInTransactionMode[] =
    "PostgreSQL: the pooler in between gives each transaction another connection of the server "
    "(pgbouncer: pool_mode=transaction): use session mode, or connect to the server itself";

absl::StatusCode CodeOf(const std::string& state) {
  if (state == "40001" || state == "40P01") return absl::StatusCode::kAborted;
  if (state == "23505") return absl::StatusCode::kAlreadyExists;
  if (state == "57014" || state == "55P03") return absl::StatusCode::kDeadlineExceeded;
  if (state == "42P01" || state == "3F000" || state == "42703") {
    return absl::StatusCode::kFailedPrecondition;
  }
  if (state == "42501") return absl::StatusCode::kPermissionDenied;
  const std::string group = state.substr(0, 2);
  // The server's own faults, whatever it was asked: of the connection, of the transaction (which
  // may only read on a standby), of an operator, of the system, and of PostgreSQL itself.
  for (const char* const of_server : {"08", "25", "57", "58", "XX"}) {
    if (group == of_server) return absl::StatusCode::kUnavailable;
  }
  if (group == "28") return absl::StatusCode::kPermissionDenied;
  if (group == "53") return absl::StatusCode::kResourceExhausted;
  return absl::StatusCode::kInternal;
}

std::string Clean(const char* message) {
  const absl::string_view text = message != nullptr ? message : "";
  return absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(text), {{"\n", " "}});
}

// Between two looks at whether to stop.
constexpr absl::Duration kPostgresPoll = absl::Milliseconds(100);

// What the string says, by keyword.
absl::StatusOr<std::map<std::string, std::string>> ParseConninfo(const std::string& conninfo) {
  char* error = nullptr;
  PQconninfoOption* const options = PQconninfoParse(conninfo.c_str(), &error);
  if (options == nullptr) {
    const absl::Status status =
        absl::InvalidArgumentError(absl::StrCat("connection string: ", Clean(error)));
    PQfreemem(error);
    return status;
  }
  std::map<std::string, std::string> values;
  for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    if (option->val != nullptr) values[option->keyword] = option->val;
  }
  PQconninfoFree(options);
  return values;
}

void AddDefaults(const Connection::Options& options, std::map<std::string, std::string>* values) {
  const auto set = [values](const std::string& key, const std::string& value) {
    values->emplace(key, value);  // what is there stays
  };
  // Encrypted and verified, unless the user says otherwise. On a Unix socket libpq does neither.
  const char* const variable = std::getenv("PGSSLMODE");
  const bool says_mode = variable != nullptr && *variable != '\0';
  if (!says_mode && !values->contains("service")) set("sslmode", "verify-full");
  set("application_name", "convtune-fleet");
  set("connect_timeout",
      absl::StrCat(std::max<int64_t>(2, absl::ToInt64Seconds(options.connect_timeout))));
  // A server that is gone must not be waited for until TCP gives up.
  set("keepalives_idle", "10");
  set("keepalives_interval", "5");
  set("keepalives_count", "3");
  set("tcp_user_timeout", "20000");
  set("client_encoding", "UTF8");
}

}  // namespace

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 63 && !absl::ascii_isdigit(name[0]) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

Param::Param(double value) {
  char buffer[40];  // for the shortest text that reads back as the same number
  text.emplace(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}
Param::Param(Bytes value)
    : text(absl::StrCat("\\x", absl::BytesToHexString(
                                   absl::string_view(value.bytes.data(), value.bytes.size())))) {}
Param::Param(absl::Time value) : text(absl::FormatTime(kTimeFormat, value, absl::UTCTimeZone())) {}
Param::Param(absl::Duration value) : Param(absl::ToDoubleSeconds(value)) {}
Param::Param(const std::vector<Param>& array) : text("{") {
  for (const Param& element : array) {
    absl::StrAppend(&*text, text->size() > 1 ? ",\"" : "\"",
                    absl::StrReplaceAll(*element.text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
  }
  *text += "}";
}

bool Cell::is_null() const { return PQgetisnull(result_, row_, column_) != 0; }
const char* Cell::Value() const { return PQgetvalue(result_, row_, column_); }
std::string_view Cell::bytes() const {
  return {Value(), static_cast<size_t>(PQgetlength(result_, row_, column_))};
}
std::string Cell::Text() const {
  std::string text(bytes());
  const bool is_hex = PQftype(result_, column_) == kByteaOid &&
                      PQfformat(result_, column_) != kBinary && !text.empty();
  return is_hex ? absl::HexStringToBytes(text.substr(2)) : text;  // behind "\x"
}
int64_t Cell::Int() const { return std::strtoll(Value(), nullptr, 10); }
double Cell::Real() const { return std::strtod(Value(), nullptr); }
absl::Time Cell::Time() const {
  absl::Time time;
  std::string error;
  return absl::ParseTime(kTimeFormat, Value(), &time, &error) ? time : absl::InfinitePast();
}

void Result::Clear::operator()(pg_result* result) const { PQclear(result); }
Result::Result(pg_result* result) : result_(result) {
  for (int row = 0; row < PQntuples(result); ++row) rows_.emplace_back(result, row);
}
int64_t Result::changed() const { return std::strtoll(PQcmdTuples(result_.get()), nullptr, 10); }

void Connection::Close::operator()(pg_conn* connection) const { PQfinish(connection); }

absl::StatusOr<std::unique_ptr<Connection>> Connection::Connect(const Options& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> postgres, Open(options));
  // A pooler tells its clients numbers of its own. Between two statements of one client it gives
  // what that had to another, or gives it something else, unless it is in session mode.
  if (PQbackendPID(postgres->connection_.get()) == postgres->process_) return postgres;
  const auto beside = postgres->OpenBeside();
  ASSIGN_OR_RETURN(const int now, postgres->QueryValue<int>("SELECT pg_backend_pid()"));
  if (now != postgres->process_ || (beside.ok() && (*beside)->process_ == now)) {
    return absl::FailedPreconditionError(kInTransactionMode);
  }
  return postgres;
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::OpenBeside() const {
  Options options = options_;
  options.connect_timeout = absl::ZeroDuration();
  options.statement_timeout = absl::ZeroDuration();  // an answer has kAnswerGrace
  options.say = nullptr;
  return Open(options);
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const Options& options) {
  if (!IsName(options.schema)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: must be ", kNameRule, ", is \"", options.schema, "\""));
  }
  ASSIGN_OR_RETURN(auto values, ParseConninfo(options.conninfo));
  AddDefaults(options, &values);
  std::vector<const char*> keys;
  std::vector<const char*> texts;
  for (const auto& [key, value] : values) {
    keys.push_back(key.c_str());
    texts.push_back(value.c_str());
  }
  keys.push_back(nullptr);
  texts.push_back(nullptr);
  std::unique_ptr<Connection> postgres(
      new Connection(PQconnectdbParams(keys.data(), texts.data(), 0), options));
  if (postgres->connection_ == nullptr) return absl::ResourceExhaustedError("out of memory");
  if (PQstatus(postgres->connection_.get()) != CONNECTION_OK) {
    return absl::UnavailableError(
        absl::StrCat("PostgreSQL: ", Clean(PQerrorMessage(postgres->connection_.get()))));
  }
  PQsetNoticeProcessor(
      postgres->connection_.get(), [](void*, const char*) {}, nullptr);
  if (PQsetnonblocking(postgres->connection_.get(), 1) != 0) return postgres->Error(nullptr);
  // The server, too, gives up a client that it cannot hear, and its locks with it. Cells read
  // times and bytes in one form, whatever the server, the role or the string prefers.
  const std::string session =
      absl::StrCat("SET search_path TO ", options.schema, "; SET statement_timeout TO ",
                   absl::ToInt64Milliseconds(options.statement_timeout), "; SET lock_timeout TO ",
                   absl::ToInt64Milliseconds(options.statement_timeout / 2),
                   "; SET idle_in_transaction_session_timeout TO ",
                   absl::ToInt64Milliseconds(2 * options.statement_timeout),
                   "; SET TimeZone TO 'UTC'; SET DateStyle TO 'ISO, YMD'; SET bytea_output TO "
                   "'hex'; SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; "
                   "SET tcp_keepalives_count TO 3; SELECT set_config(name, '",
                   absl::ToInt64Milliseconds(options.idle_timeout),
                   "', false) FROM pg_settings WHERE name = 'idle_session_timeout'; "
                   "SELECT pg_backend_pid()");
  ASSIGN_OR_RETURN(const Result process, postgres->Finish(PQsendQuery(postgres->connection_.get(),
                                                                      session.c_str()) == 1));
  postgres->process_ = process[0][0];
  return postgres;
}

absl::StatusOr<std::string> Connection::WaitsFor() const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> beside, OpenBeside());
  const absl::StatusOr<Result> rows = beside->Query(
      "SELECT concat('for a lock (', (SELECT string_agg(COALESCE(relation::regclass::text, "
      "locktype), ', ') FROM pg_locks WHERE pid = $1 AND NOT granted), ') of ', "
      "string_agg(concat('process ', p, ' (', concat_ws(', ', usename, application_name, state), "
      "')'), ' and of ')) FROM unnest(pg_blocking_pids($1)) AS p LEFT JOIN pg_stat_activity ON pid "
      "= p HAVING COUNT(*) > 0",
      {process_});
  return rows.ok() && !rows->empty() ? std::string((*rows)[0][0]) : "";
}

absl::Status Connection::Error(const pg_result* result) const {
  const auto field = [result](int code) -> std::string {
    const char* const text = PQresultErrorField(result, code);
    return text != nullptr ? text : "";
  };
  const std::string state = field(PG_DIAG_SQLSTATE);
  // A statement that this connection prepared is not there, or another client's is.
  if (state == "26000" || state == "42P05") {
    return absl::FailedPreconditionError(kInTransactionMode);
  }
  std::string message = Clean(PQresultErrorMessage(result));
  if (message.empty()) message = Clean(PQerrorMessage(connection_.get()));
  absl::StatusCode code = CodeOf(state);
  if (!ok()) code = absl::StatusCode::kUnavailable;
  if (code == absl::StatusCode::kFailedPrecondition) {
    absl::StrAppend(&message, " (has `convtune-fleet migrate` been run?)");
  }
  if (code == absl::StatusCode::kPermissionDenied) absl::StrAppend(&message, kHowToGrant);
  if (state == "55P03") {
    message = absl::StrCat("gave up waiting ", waits_for_.empty() ? "for a lock" : waits_for_,
                           " after ", absl::FormatDuration(options_.statement_timeout / 2));
  }
  // Keys of one column whose name ends so have a sequence: "Key (node_id)=(7) already exists."
  const std::string table = field(PG_DIAG_TABLE_NAME);
  const std::string detail = field(PG_DIAG_MESSAGE_DETAIL);
  const std::string columns = detail.substr(0, detail.find(")=("));
  if (state == "23505" && field(PG_DIAG_CONSTRAINT_NAME) == table + "_pkey" &&
      columns.ends_with("_id") && columns.find(',') == std::string::npos) {
    absl::StrAppend(&message, " (the sequence of ", table,
                    " stands behind its rows, as after a partial restore: `convtune-fleet "
                    "migrate` moves it on)");
  }
  return absl::Status(code, absl::StrCat("PostgreSQL: ", message));
}

absl::Status Connection::Usable() const {
  if (ok()) return absl::OkStatus();
  return absl::UnavailableError("PostgreSQL: the connection is lost");
}

absl::Status Connection::WaitForSocket(int events, SteadyTime deadline) {
  SteadyTime ask = SteadyTime::Now() + kSayAfter;
  while (true) {
    const SteadyTime now = SteadyTime::Now();
    if (now >= ask && options_.say != nullptr) {
      ask = SteadyTime::InfiniteFuture();
      const absl::StatusOr<std::string> waits_for = WaitsFor();
      waits_for_ = waits_for.value_or("");
      if (!waits_for.ok()) {
        options_.say(
            absl::StrCat("PostgreSQL: waits for a lock, or for the server itself; which is "
                         "not known without a second connection: ",
                         std::string(waits_for.status().message())));
      } else if (!waits_for_.empty()) {
        options_.say(absl::StrCat("PostgreSQL: waits ", waits_for_));
      }
    }
    if (stop_deadline_ == SteadyTime::InfiniteFuture() && options_.stop()) {
      stop_deadline_ = now + kStopGrace;
    }
    const SteadyTime end = std::min(deadline, stop_deadline_);
    if (now >= end) {
      lost_ = true;
      return absl::UnavailableError(absl::StrCat(
          "PostgreSQL: no answer ",
          end == stop_deadline_ ? "until the stop"
                                : absl::StrCat("within ", absl::FormatDuration(AnswerTimeout())),
          "; the connection is given up"));
    }
    pollfd poll_fd{PQsocket(connection_.get()), static_cast<int16_t>(events), 0};
    if (PollUntil({&poll_fd, 1}, std::min(end, now + kPostgresPoll)) > 0) return absl::OkStatus();
  }
}

absl::Status Connection::Await(SteadyTime deadline) {
  while (true) {
    const int unsent = PQflush(connection_.get());
    if (unsent < 0) return Error(nullptr);
    if (unsent == 0 && PQisBusy(connection_.get()) == 0) return absl::OkStatus();
    RETURN_IF_ERROR(WaitForSocket(unsent > 0 ? POLLIN | POLLOUT : POLLIN, deadline));
    if (PQconsumeInput(connection_.get()) == 0) return Error(nullptr);
  }
}

absl::StatusOr<Result> Connection::Finish(bool sent) {
  if (!sent) return Error(nullptr);
  const SteadyTime deadline = SteadyTime::Now() + AnswerTimeout();
  waits_for_.clear();
  absl::StatusOr<Result> last = absl::InternalError("PostgreSQL: no result");
  absl::Status failed;
  while (true) {
    RETURN_IF_ERROR(Await(deadline));
    pg_result* const next = PQgetResult(connection_.get());
    if (next == nullptr) break;
    const ExecStatusType kind = PQresultStatus(next);
    if (kind != PGRES_TUPLES_OK && kind != PGRES_COMMAND_OK) failed.Update(Error(next));
    last = Result(next);
  }
  RETURN_IF_ERROR(failed);
  return last;
}

absl::StatusOr<Result> Connection::Query(const std::string& sql, const Params& params) {
  RETURN_IF_ERROR(Usable());
  std::vector<const char*> values;
  for (const Param& param : params) {
    values.push_back(param.text.has_value() ? param.text->c_str() : nullptr);
  }
  const std::string name = absl::StrCat("s", absl::Hex(std::hash<std::string>()(sql)));
  if (!prepared_.contains(name)) {
    RETURN_IF_ERROR(
        Finish(PQsendPrepare(connection_.get(), name.c_str(), sql.c_str(), 0, nullptr) == 1)
            .status());
    prepared_.insert(name);
  }
  return Finish(PQsendQueryPrepared(connection_.get(), name.c_str(),
                                    static_cast<int>(values.size()), values.data(), nullptr,
                                    nullptr, 0) == 1);
}

absl::Status Connection::Pages(const std::string& sql, const Params& params, int page_size,
                               const std::function<absl::Status(const Result&)>& take) {
  RETURN_IF_ERROR(Execute(absl::StrCat("DECLARE pages BINARY CURSOR FOR ", sql), params));
  const std::string fetch = absl::StrCat("FETCH ", page_size, " FROM pages");
  while (true) {
    RETURN_IF_ERROR(Usable());
    // Not prepared: the columns are those of the statement.
    ASSIGN_OR_RETURN(const Result page, Finish(PQsendQuery(connection_.get(), fetch.c_str()) == 1));
    RETURN_IF_ERROR(take(page));
    if (page.size() < page_size) return Execute("CLOSE pages");
  }
}

absl::Status Connection::Execute(const std::string& sql) {
  RETURN_IF_ERROR(Usable());
  return Finish(PQsendQuery(connection_.get(), sql.c_str()) == 1).status();
}

bool Connection::ok() const { return !lost_ && PQstatus(connection_.get()) == CONNECTION_OK; }

absl::StatusOr<bool> Connection::WaitForNotification(absl::Duration timeout) {
  RETURN_IF_ERROR(Usable());
  const auto take = [this] {
    bool any = false;
    while (PGnotify* const notification = PQnotifies(connection_.get())) {
      PQfreemem(notification);
      any = true;
    }
    return any;
  };
  if (take()) return true;
  pollfd poll_fd{PQsocket(connection_.get()), POLLIN, 0};
  if (PollUntil({&poll_fd, 1}, SteadyTime::Now() + timeout) > 0 &&
      PQconsumeInput(connection_.get()) == 0) {
    return absl::UnavailableError(
        absl::StrCat("PostgreSQL: ", Clean(PQerrorMessage(connection_.get()))));
  }
  return take();
}

absl::StatusOr<Transaction> Transaction::Begin(Connection& postgres) {
  RETURN_IF_ERROR(postgres.Execute("BEGIN"));
  return Transaction(&postgres);
}

absl::StatusOr<Transaction> Transaction::BeginRead(Connection& postgres) {
  RETURN_IF_ERROR(postgres.Execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"));
  return Transaction(&postgres);
}

Transaction::Transaction(Transaction&& other) noexcept
    : postgres_(std::exchange(other.postgres_, nullptr)) {}

Transaction::~Transaction() {
  if (postgres_ != nullptr && postgres_->ok()) postgres_->Execute("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() { return std::exchange(postgres_, nullptr)->Execute("COMMIT"); }

}  // namespace convtune::db::postgres
