#include "db/sqlite/statement.h"

#include <sqlite3.h>

#include "db/sqlite/database.h"
#include "proto/base/status_macros.h"

namespace convtune::db::sqlite {

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

Value Statement::At(int column) const {
  switch (sqlite3_column_type(statement_.get(), column)) {
    case SQLITE_INTEGER:
      return Int(column);
    case SQLITE_FLOAT:
      return Real(column);
    case SQLITE_TEXT:
      return Text(column);
    case SQLITE_BLOB:
      return sqlite::Blob{Blob(column)};
    default:
      return nullptr;
  }
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

double Statement::Real(int column) const { return sqlite3_column_double(statement_.get(), column); }

std::string_view Statement::Text(int column) const {
  const auto* text = sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) {
    return {};
  }
  return {reinterpret_cast<const char*>(text),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::string_view Statement::Blob(int column) const {
  const void* blob = sqlite3_column_blob(statement_.get(), column);
  if (blob == nullptr) {
    return {};
  }
  return {static_cast<const char*>(blob),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

}  // namespace convtune::db::sqlite
