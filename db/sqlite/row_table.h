// A Table has the statements of a table whose rows have checksums. Functions over a Row write
// and read its rows. A Row is a struct that lists its columns once:
//
//   struct PinRow {
//     static constexpr std::string_view kTable = "pins";
//     static constexpr std::string_view kKey = "environment_id, problem_text";
//     // Calls columns(name, field) of each column but `checksum`, in the order of the table.
//     static void Visit(auto& row, auto& columns) {
//       columns("environment_id", row.environment_id);
//       ...
//     }
//     std::string Label() const;  // names the row in errors
//   };
//
// Fields: numbers, texts, enumerations (with their first and last number, others are damage),
// times, and the model's values that have a text form.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/sqlite/database.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::db::sqlite {

// The end of the error message of a row whose content is not the one that was written.
inline constexpr char kBadChecksum[] = "the checksum does not match";

// Is told of each damaged row that was left out.
using CorruptRowSink = std::function<void(const std::string&)>;

struct Table {
  Table(std::string_view table, std::string_view key, std::vector<std::string_view> names);

  std::string_view name;
  std::vector<std::string_view> columns;  // without `checksum`
  std::string insert;                     // INSERT of all columns, which are the parameters
  std::string put;                        // the same, replacing what the key's row had
  // What ReadRow reads: the columns, and whether the checksum is theirs.
  std::string list;
  int width() const { return static_cast<int>(columns.size()) + 1; }
};

// Collects the columns' names.
struct ColumnNames {
  void operator()(std::string_view name, const auto&... /*field*/) { names.push_back(name); }
  void Blob(std::string_view name, const std::string& /*value*/) { names.push_back(name); }
  std::vector<std::string_view> names;
};

// Binds fields. Not thread-safe.
class FieldWriter {
 public:
  explicit FieldWriter(Statement* statement) : statement_(*statement) {}

  template <typename T>
  void operator()(std::string_view /*name*/, const T& value) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      Add(static_cast<int64_t>(value));
    } else {
      Put(value);
    }
  }
  template <typename T, typename E>
  void operator()(std::string_view name, const T& value, E /*first*/, E /*last*/) {
    (*this)(name, value);
  }
  void Blob(std::string_view /*name*/, const std::string& value) { Add(sqlite::Blob{value}); }

 private:
  void Add(const Value& value) { statement_.BindValue(++index_, value); }
  void Put(double value) { Add(value); }
  void Put(const std::string& value) { Add(std::string_view(value)); }
  void Put(absl::Time value) { Add(absl::ToUnixMicros(value)); }
  void Put(absl::Duration value) { Add(absl::ToInt64Microseconds(value)); }
  void Put(const std::optional<absl::Time>& value) {
    Add(value ? Value(absl::ToUnixMicros(*value)) : Value(nullptr));
  }
  void Put(const CandidateId& value) { Put(ToText(value)); }
  void Put(const std::optional<CandidateId>& value) { Put(value ? ToText(*value) : ""); }
  void Put(const auto& value) { Put(value.ToText()); }
  template <typename E>
  void Put(const std::optional<E>& value) {
    Add(value ? static_cast<int64_t>(*value) : 0);
  }

  Statement& statement_;
  int index_ = 0;
};

// Sets fields from the row at which `statement` stands. Not thread-safe.
class FieldReader {
 public:
  FieldReader(const Statement& statement, int first) : statement_(statement), next_(first) {}

  template <typename T>
  void operator()(std::string_view name, T& value) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      value = static_cast<T>(statement_.Int(next_++));
    } else {
      Get(name, &value);
    }
  }
  template <typename E>
  void operator()(std::string_view name, E& value, E first, E last) {
    (*this)(name, value);
    if (value < first || value > last) Refuse(name, "unknown number");
  }
  template <typename E>
  void operator()(std::string_view name, std::optional<E>& value, E first, E last) {
    E number{};
    (*this)(name, number);
    value = number == E{} ? std::nullopt : std::optional<E>(number);
    if (value && (number < first || number > last)) Refuse(name, "unknown number");
  }
  void Blob(std::string_view /*name*/, std::string& value) { value = statement_.Text(next_++); }

  // Names the first column whose value this program does not know, and says why; empty if
  // all values are known.
  const std::string& problem() const { return problem_; }

 private:
  void Get(std::string_view /*name*/, double* value) { *value = statement_.Real(next_++); }
  void Get(std::string_view /*name*/, std::string* value) { *value = statement_.Text(next_++); }
  void Get(std::string_view /*name*/, absl::Time* value) {
    *value = absl::FromUnixMicros(statement_.Int(next_++));
  }
  void Get(std::string_view /*name*/, absl::Duration* value) {
    *value = absl::Microseconds(statement_.Int(next_++));
  }
  void Get(std::string_view /*name*/, std::optional<absl::Time>* value) {
    if (!statement_.IsNull(next_)) *value = absl::FromUnixMicros(statement_.Int(next_));
    ++next_;
  }
  void Get(std::string_view name, CandidateId* value) {
    Take(name, ParseCandidateId(statement_.Text(next_++)), value);
  }
  void Get(std::string_view name, std::optional<CandidateId>* value) {
    if (statement_.Text(next_).empty()) {
      ++next_;
    } else {
      Get(name, &value->emplace());
    }
  }
  template <typename T>
  void Get(std::string_view name, T* value) {
    Take(name, T::Parse(statement_.Text(next_++)), value);
  }
  template <typename T>
  void Take(std::string_view name, absl::StatusOr<T> parsed, T* value) {
    if (parsed.ok()) {
      *value = *std::move(parsed);
    } else {
      Refuse(name, std::string(parsed.status().message()));
    }
  }
  void Refuse(std::string_view name, const std::string& why) {
    if (problem_.empty()) problem_ = Concat(name, ": ", why);
  }

  const Statement& statement_;
  int next_;
  std::string problem_;
};

template <typename Row>
const Table& TableOf() {
  static const Table table = [] {
    ColumnNames columns;
    const Row row{};
    Row::Visit(row, columns);
    return Table(Row::kTable, Row::kKey, std::move(columns.names));
  }();
  return table;
}

// Returns the error of a damaged row; `what` ends its message.
template <typename Row>
absl::Status Damaged(const Row& row, std::string_view what) {
  return absl::DataLossError(Concat(Row::kTable, " row (", row.Label(), "): ", what));
}

// The row at which `statement` stands; its columns from `first` are the table's list.
// DATA_LOSS, naming the row, if its checksum does not match or a value means nothing to this
// program.
template <typename Row>
absl::StatusOr<Row> ReadRow(const Statement& statement, int first = 0) {
  Row row;
  FieldReader reader(statement, first);
  Row::Visit(row, reader);
  const bool sound = statement.Int(first + TableOf<Row>().width() - 1) != 0;
  if (!sound) return Damaged(row, kBadChecksum);
  if (!reader.problem().empty()) return Damaged(row, reader.problem());
  return row;
}

// Calls `take(row)` for each row of "SELECT ... FROM table" and `rest`, which has these values.
template <typename Row, typename Take, typename... Values>
absl::Status ReadRows(const Database& database, std::string_view rest,
                      const CorruptRowSink& corrupt, const Take& take, const Values&... values) {
  const Table& table = TableOf<Row>();
  return database.ForEachRow(
      Concat("SELECT ", table.list, " FROM ", table.name, " ", rest),
      [&](const Statement& statement) {
        absl::StatusOr<Row> row = ReadRow<Row>(statement);
        if (row.ok()) {
          take(*std::move(row));
        } else {
          corrupt(std::string(row.status().message()));
        }
      },
      values...);
}

// Writes the row with a statement of the table's `insert` or `put`.
template <typename Row>
absl::Status WriteRow(const Row& row, Statement* statement) {
  FieldWriter writer(statement);
  Row::Visit(row, writer);
  return statement->Run();
}

// INTERNAL if there is a row with its key, which then stays.
template <typename Row>
absl::Status InsertRow(const Database& database, const Row& row) {
  ASSIGN_OR_RETURN(Statement statement, database.Prepare(TableOf<Row>().insert));
  return WriteRow(row, &statement);
}

// Writes the row in place of the one that has its key.
template <typename Row>
absl::Status PutRow(const Database& database, const Row& row) {
  ASSIGN_OR_RETURN(Statement statement, database.Prepare(TableOf<Row>().put));
  return WriteRow(row, &statement);
}

}  // namespace convtune::db::sqlite
