// A Context is what a command gets to work with: streams, settings, connection. An ExitCode is
// what the program ends with.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/app/settings.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/io.h"
#include "client/cpp/client.h"
#include "proto/base/strings.h"

namespace convtune::cli::app {

enum class ExitCode {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,        // usage, or an invalid problem
  kMiss = 3,         // a miss, or not found
  kUnreachable = 4,  // no daemon
  kUnheeded = 5,     // a decision stands that nodes or programs do not have in time
};

// The exit code of a batch whose parts ended with `a` and `b`: the first that
// applies of 4, 2, 1, 3, 5, 0.
ExitCode Worse(ExitCode a, ExitCode b);

// The exit code after a call that ended with `status`.
ExitCode ExitCodeOf(const absl::Status& status);

enum class Format { kTable, kJson, kCsv };

// One run of one command. Not thread-safe.
class Context {
 public:
  Context(output::Io& io, Settings settings, Format format)
      : io_(io), settings_(std::move(settings)), format_(format) {}

  output::Io& io() { return io_; }
  const Settings& settings() const { return settings_; }
  Format format() const { return format_; }
  bool out_color() const { return output::WantsColor(io_, io_.out_is_terminal); }
  bool err_color() const { return output::WantsColor(io_, io_.err_is_terminal); }
  // Width that tables keep to; 0: they may be as wide as they are.
  int table_width() const { return io_.out_is_terminal ? io_.columns : 0; }

  // The connection, made at the first call.
  absl::StatusOr<client::Client*> Connect();
  // The client's calls, see client::Client.
  template <typename Response>
  absl::StatusOr<Response> Call(const google::protobuf::Message& request,
                                std::optional<absl::Duration> timeout = std::nullopt) {
    ASSIGN_OR_RETURN(client::Client* const client, Connect());
    return client->Call<Response>(request, timeout);
  }
  template <typename Response, typename Request>
  absl::StatusOr<Response> CallPages(const Request& request,
                                     int most = std::numeric_limits<int>::max()) {
    ASSIGN_OR_RETURN(client::Client* const client, Connect());
    return client->CallPages<Response>(request, most);
  }
  // A request that names the environment of the settings.
  template <typename Request>
  Request NewRequest() const {
    Request request;
    request.set_environment(settings_.environment);
    return request;
  }
  // Time-out of calls that wait for a worker: without end unless one was set.
  absl::Duration long_timeout() const;

  // Write to io.out what is in the context's format, and nothing otherwise: a document of one line,
  // or rows.
  void PrintJson(const output::Fields& document);
  void PrintJson(const google::protobuf::Message& document);
  // Lines of CSV, or a table, which is nothing without a row: `fields_of` returns the
  // output::Fields of a row. Those of `example` are for the headings.
  template <typename Rows, typename FieldsOf>
  void PrintRows(const Rows& rows, const FieldsOf& fields_of,
                 const output::RowOf<Rows>& example = {}) {
    if (format_ == Format::kTable && rows.begin() != rows.end()) {
      const output::Table table = output::TableOf(rows, fields_of, example);
      io_.out << table.Render(table_width(), out_color());
    }
    if (format_ != Format::kCsv) return;
    io_.out << output::CsvHeading(fields_of(example));
    for (const auto& row : rows) io_.out << output::CsvRow(fields_of(row));
  }

  // Writes a line of words, which are made of parts, to io.err.
  template <typename... Parts>
  void Say(const Parts&... parts) {
    io_.err << Concat(parts...) << "\n";
  }
  // Writes a line of words that starts with "error: " to io.err.
  template <typename... Parts>
  void SayError(const Parts&... parts) {
    Say(output::Paint("error:", output::Color::kRed, err_color()), " ", parts...);
  }
  // Says the error, field by field if it has fields, with what to do about it. Returns its exit
  // code.
  ExitCode Fail(const absl::Status& status);

 private:
  output::Io& io_;
  Settings settings_;
  Format format_;
  std::unique_ptr<client::Client> client_;
};

}  // namespace convtune::cli::app
