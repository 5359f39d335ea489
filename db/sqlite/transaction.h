#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::db::sqlite {

class Database;

// From Begin to Commit; rolls back when it goes out of scope without one. Not thread-safe; must not
// outlive its Database.
class Transaction {
 public:
  // Takes the write lock at once, so that a lock that is not free fails here.
  static absl::StatusOr<Transaction> Begin(Database& database);
  // Every statement reads one state of the file. There is nothing to commit.
  static absl::StatusOr<Transaction> BeginRead(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  // OK: durable. Otherwise everything was rolled back.
  absl::Status Commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}

  Database* database_;  // null: over
};

}  // namespace convtune::db::sqlite
