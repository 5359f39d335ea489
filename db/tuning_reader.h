// Reading the store's tables through one connection, each call in one read
// transaction.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "proto/model/tuning.h"

namespace convtune {

// Is told of each damaged row that was left out.
using CorruptRowSink = std::function<void(const std::string&)>;

// Texts of the environments by id; damaged ones are left out.
absl::StatusOr<std::map<int64_t, std::string>> ReadEnvironmentTexts(const Database& database,
                                                                    const CorruptRowSink& corrupt);

// With samples. NOT_FOUND if there is none; DATA_LOSS if a row of it is
// damaged, its samples included.
absl::StatusOr<Tuning> ReadStoredTuning(Database& database, const TuningKey& key);

// As TuningStore::ForEachTuning. A tuning with a damaged candidate is left out
// as a whole: what is left might have another winner.
absl::Status ForEachStoredTuning(Database& database, const std::function<void(Tuning)>& visit,
                                 const CorruptRowSink& corrupt);

// Environments that any row refers to.
absl::StatusOr<std::vector<Environment>> ReadStoredEnvironments(Database& database,
                                                                const CorruptRowSink& corrupt);
// Ordered by environment and problem.
absl::StatusOr<std::vector<Pin>> ReadStoredPins(Database& database, const CorruptRowSink& corrupt);
absl::StatusOr<std::vector<QuarantineEntry>> ReadStoredQuarantine(Database& database,
                                                                  const CorruptRowSink& corrupt);

}  // namespace convtune
