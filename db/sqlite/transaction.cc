#include "db/sqlite/transaction.h"

#include <utility>

#include "db/sqlite/database.h"
#include "proto/base/status_macros.h"

namespace convtune::db::sqlite {

absl::StatusOr<Transaction> Transaction::Begin(Database& database) {
  RETURN_IF_ERROR(database.Run("BEGIN IMMEDIATE"));
  return Transaction(&database);
}

absl::StatusOr<Transaction> Transaction::BeginRead(Database& database) {
  RETURN_IF_ERROR(database.Run("BEGIN"));
  return Transaction(&database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  if (database_ != nullptr) {
    database_->RollBack();
  }
}

absl::Status Transaction::Commit() {
  // A refused COMMIT leaves the transaction open; the destructor ends it.
  RETURN_IF_ERROR(database_->Run("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

}  // namespace convtune::db::sqlite
