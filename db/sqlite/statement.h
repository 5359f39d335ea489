#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3_stmt;

namespace convtune::db::sqlite {

class Database;

struct Blob {
  std::string_view bytes;
  friend bool operator==(const Blob&, const Blob&) = default;
};

// A value of one of SQLite's types; nullptr: NULL.
using Value = std::variant<std::nullptr_t, int64_t, double, std::string_view, Blob>;

// A prepared statement, which goes back to its Database for the next one with
// the same text. Not thread-safe; must not outlive its Database.
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
  // Calls `visit()` at each row, until it returns an error if it returns a Status; then resets.
  template <typename Visit>
  absl::Status ForEachRow(const Visit& visit) {
    absl::Status status;
    while (status.ok()) {
      const absl::StatusOr<bool> more = Step();
      if (!more.ok()) return more.status();
      if (!*more) break;
      if constexpr (std::is_void_v<decltype(visit())>) {
        visit();
      } else {
        status = visit();
      }
    }
    Reset();
    return status;
  }

  // `column` counts from 0, after Step() gave a row. Views are valid until the
  // next Step or Reset.
  Value At(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string_view Text(int column) const;
  std::string_view Blob(int column) const;

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

}  // namespace convtune::db::sqlite
