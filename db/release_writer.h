// Writing releases, choices and wanted problems. Every function runs inside a
// transaction of the caller, who rolls it back on any error.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "proto/model/release.h"

namespace convtune {

// See ReleaseStore. INVALID_ARGUMENT, naming the field, if a number is none.
absl::Status StoreRelease(Database& database, const Release& release,
                          const std::vector<Portfolio>& portfolios);
absl::Status ErasePortfoliosOf(Database& database, int64_t release);
absl::StatusOr<int64_t> ErasePortfoliosBefore(Database& database, int64_t oldest);
absl::Status StoreWanted(Database& database, const std::vector<WantedProblem>& put,
                         const std::vector<TuningKey>& drop);

}  // namespace convtune
