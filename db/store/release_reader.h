// Functions that read releases, choices and missed problems, each in one read
// transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/sqlite/database.h"
#include "db/store/tuning_reader.h"
#include "proto/model/release/release.h"

namespace convtune::db::store {

// See ReleaseStore. Damaged rows are passed to `corrupt` and left out.
absl::StatusOr<std::vector<Release>> ReadStoredReleases(sqlite::Database& database,
                                                        const CorruptRowSink& corrupt);
// DATA_LOSS if a row of it is damaged.
absl::StatusOr<Portfolio> ReadStoredPortfolio(sqlite::Database& database, const TuningKey& key,
                                              int64_t release);
absl::Status ForEachStoredPortfolio(sqlite::Database& database, const std::string& environment_text,
                                    int64_t release, const std::function<void(Portfolio)>& visit,
                                    const CorruptRowSink& corrupt);
absl::StatusOr<std::vector<WantedProblem>> ReadStoredWanted(sqlite::Database& database,
                                                            const CorruptRowSink& corrupt);

}  // namespace convtune::db::store
