// A ReleaseStore keeps releases and missed problems. An interface, so that engines
// can be exchanged and failures injected.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model/release/release.h"

namespace convtune::db {

// Thread-safe. Mutations are durable and whole, and fail as TuningStore's.
class ReleaseStore {
 public:
  virtual ~ReleaseStore() = default;

  // In order of number.
  virtual absl::StatusOr<std::vector<Release>> ListReleases() = 0;
  // Writes the release, replacing one of the same number, and these portfolios
  // of it, whatever their `release` says, replacing what it had for the same
  // problems. One that is rolled back loses every portfolio that it had.
  virtual absl::Status PutRelease(const Release& release,
                                  const std::vector<Portfolio>& portfolios) = 0;

  // The portfolio that a problem has in `release`: its own or, where it has
  // none, that of the nearest release before it. NOT_FOUND without any; a
  // portfolio without choices where the problem has none any more.
  virtual absl::StatusOr<Portfolio> GetPortfolio(const TuningKey& key, int64_t release) = 0;
  // Every problem's, in the order of (environment text, problem text). Empty
  // `environment_text`: all. A damaged one is passed to `corrupt` as text and
  // left out. The callbacks must not call the store.
  virtual absl::Status ForEachPortfolio(const std::string& environment_text, int64_t release,
                                        const std::function<void(Portfolio)>& visit,
                                        const std::function<void(const std::string&)>& corrupt) = 0;
  // Drops the portfolios that no release from `oldest` on has any more. Returns
  // their rows.
  virtual absl::StatusOr<int64_t> ThinPortfolios(int64_t oldest) = 0;

  // Looks at the pages of every table that what is served rests on, where damage
  // may hide rows without an error. DATA_LOSS names the first finding; the next
  // start then checks the whole file.
  virtual absl::Status CheckServed() = 0;
  // True while the store may lack choices that the last snapshot has: from its
  // first use, and from SetCarryOver(true), until SetCarryOver(false).
  virtual absl::StatusOr<bool> CarriesOver() = 0;
  virtual absl::Status SetCarryOver(bool carry_over) = 0;

  // Writes the first list, replacing entries of the same key, and drops the
  // second.
  virtual absl::Status UpdateWanted(const std::vector<WantedProblem>& put,
                                    const std::vector<TuningKey>& drop) = 0;
  // Ordered by (environment text, problem text).
  virtual absl::StatusOr<std::vector<WantedProblem>> ListWanted() = 0;
};

}  // namespace convtune::db
