// Functions that write releases, choices and missed problems, each inside a
// transaction of the caller, who rolls it back on any error.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "proto/model/release/release.h"

namespace convtune::db::store {

// See ReleaseStore. INVALID_ARGUMENT, naming the field, if a number is NaN or infinite.
absl::Status StoreRelease(sqlite::Database& database, const Release& release,
                          const std::vector<Portfolio>& portfolios);
absl::Status ErasePortfoliosOf(sqlite::Database& database, int64_t release);
absl::StatusOr<int64_t> ErasePortfoliosBefore(sqlite::Database& database, int64_t oldest);
absl::Status StoreWanted(sqlite::Database& database, const std::vector<WantedProblem>& put,
                         const std::vector<TuningKey>& drop);

}  // namespace convtune::db::store
