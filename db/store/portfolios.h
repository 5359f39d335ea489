// Functions that write and read portfolios, whose rows are their choices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/sqlite/row_table.h"
#include "proto/model/release/release.h"

namespace convtune::db::store {

// See ReleaseStore. Those that write run inside a transaction of the caller, who rolls it back
// on any error; those that read have one of their own.

// Replaces what the release had for the same problems. INVALID_ARGUMENT, naming the field, if a
// number is NaN or infinite.
absl::Status StorePortfolios(sqlite::Database& database, int64_t release,
                             const std::vector<Portfolio>& portfolios);
// DATA_LOSS if a row of it is damaged.
absl::StatusOr<Portfolio> ReadPortfolio(sqlite::Database& database, const TuningKey& key,
                                        int64_t release);
// Damaged portfolios are passed to `corrupt` and left out.
absl::Status ForEachStoredPortfolio(sqlite::Database& database, const std::string& environment_text,
                                    int64_t release, const std::function<void(Portfolio)>& visit,
                                    const sqlite::CorruptRowSink& corrupt);

}  // namespace convtune::db::store
