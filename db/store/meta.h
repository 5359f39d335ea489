// Functions on the meta table: numbers about the file, by name.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"

namespace convtune::db::store {

// DATA_LOSS without a row of that name.
absl::StatusOr<int64_t> GetMeta(const sqlite::Database& database, std::string_view name);
absl::Status SetMeta(const sqlite::Database& database, std::string_view name, int64_t value);
// Returns the sum.
absl::StatusOr<int64_t> AddToMeta(const sqlite::Database& database, std::string_view name,
                                  int64_t amount);

}  // namespace convtune::db::store
