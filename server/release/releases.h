// Releases keep what problems are served, release by release: a problem without a choice gets
// one at once, a changed choice waits for a promotion.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/release_service.pb.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/release/release.h"
#include "server/lookup/tuning_index.h"

namespace convtune::release {

// One problem that two sets of choices differ in. Without choices: it has none.
struct ChoiceChange {
  Portfolio before;
  Portfolio after;
};

struct ReleaseDiff {
  int64_t from = 0;
  std::vector<ChoiceChange> changes;  // ordered by environment and problem
};

v1::Release ToProto(const Release& release);

// Thread-safe. Methods wait for the disk; errors are the store's.
class Releases {
 public:
  struct Options {
    db::TuningStore* store = nullptr;  // these three outlive it
    const lookup::TuningIndex* index = nullptr;
    const Clock* clock = nullptr;
    // Gives a tuning with all its candidates, of which the index has but the best.
    std::function<absl::StatusOr<Tuning>(const TuningKey&)> read;
    Evidence floor = Evidence::kObserved;  // less is not served
    bool auto_promote = false;
  };

  explicit Releases(const Options& options) : options_(options) {}

  // Reads what releases there are, without their choices.
  absl::Status Load();
  // Reads what is served, after Load and before all that follows but HasChoice
  // and List. Damaged rows are logged and left out.
  absl::Status ReadChoices();
  // Gives these problems a choice where they have none, or one that does not
  // hold any more (KeepHolding); takes it away where their tuning is gone or
  // does not hold; and notes where another one waits. With `all` it does so for
  // every problem of the index, too. Returns whether what is served changed.
  absl::StatusOr<bool> Reconcile(std::vector<TuningKey> keys, bool all = false);

  // See ReleaseHistory. A decision's time is whole microseconds, as a store keeps it.
  absl::StatusOr<Release> Promote(const ReleaseDecision& decision, int canary_permille);
  absl::StatusOr<Release> RollBack(const ReleaseDecision& decision, int64_t to);
  // Promotes, of what waits, the choices whose tunings are the fleet's; nullopt
  // if there are none. FAILED_PRECONDITION while a canary runs.
  absl::StatusOr<std::optional<Release>> PromoteFleet(const ReleaseDecision& decision);

  // False as long as the choices are not read.
  bool HasChoice(const TuningKey& key) const;
  // One page with all releases.
  v1::ListReleasesResponse List() const;
  // `from` 0: the promoted one; `to` 0: what a promotion would bring. NOT_FOUND: no such release.
  // Empty `environment_text`: of all. All changes are in memory at once, with both portfolios.
  absl::StatusOr<ReleaseDiff> Diff(int64_t from, int64_t to,
                                   const std::string& environment_text) const;

  // What is served, for one publication. Choices that do not hold are left out, so that
  // a portfolio may have none.
  struct Served {
    int64_t release = 0;  // 0: nothing yet
    int64_t canary_release = 0;
    int canary_permille = 0;
    std::vector<Portfolio> stable;  // of every problem of the release
    std::vector<Portfolio> canary;  // of those where the canary has another choice
    bool damaged = false;           // a damaged choice of theirs was left out
  };
  absl::StatusOr<Served> ReadServed() const;

 private:
  using Fingerprints = absl::flat_hash_map<TuningDigest, uint64_t>;

  using Known = std::shared_ptr<const lookup::IndexedTuning>;  // null: nothing is known

  // The portfolio of a problem; no choices if its tuning is outdated or its evidence too low.
  Portfolio Proposed(const TuningKey& key, const Known& known) const;
  // Takes out the choices that do not hold: for the CUDA libraries that there are, and beside the
  // bans. What is kept for its notes alone stays. Returns true if all choices hold. A portfolio
  // does not say which libraries it was measured with, and may be of a tuning that was replaced
  // since, of a release that was gone back to, or of a backup. So a choice that is compiled at run
  // time or uses cuBLASLt holds while the problem's own tuning does and says that the candidate
  // ran: a tuning holds for one build of each. If the present libraries are not known, all choices
  // hold.
  bool KeepHolding(Portfolio* portfolio) const;
  // Takes out the choices that do not hold for the libraries (see KeepHolding).
  void RemoveOutdated(Portfolio* portfolio) const;
  bool Ran(const lookup::IndexedTuning& known, const CandidateId& candidate) const;
  // Returns true if a choice that `release` serves for the problem does not hold.
  bool ServesWhatDoesNotHold(const TuningKey& key, int64_t release) const;
  // Empty `environment_text`: all.
  void ForEachIndexed(const std::string& environment_text,
                      const std::function<void(const Known&)>& visit) const;
  // Changes that wait; with `fleet_only`, of the fleet's tunings alone.
  std::vector<Portfolio> Waiting(bool fleet_only) const REQUIRES(mutex_);
  absl::StatusOr<Release> PromoteLocked(const ReleaseDecision& decision, int canary_permille,
                                        const std::vector<Portfolio>& changes) REQUIRES(mutex_);
  // Writes portfolios of a release in transactions of bounded size.
  absl::Status PutAll(const Release& release, const std::vector<Portfolio>& portfolios)
      REQUIRES(mutex_);
  // Logs damaged choices, leaves them out, and sets `*damaged` if there are any.
  absl::Status ReadPortfolios(int64_t release, const std::string& environment_text,
                              const std::function<void(Portfolio)>& visit,
                              bool* damaged = nullptr) const;
  bool IsServed(const TuningDigest& digest, uint64_t fingerprint) const REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  ReleaseHistory history_ GUARDED_BY(mutex_);
  // Fingerprints of the promoted release's portfolios that have a choice, and of those that the
  // canary has of its own. By digest alone: were two keys to share one, the second would have no
  // choice.
  Fingerprints promoted_ GUARDED_BY(mutex_);
  Fingerprints canary_ GUARDED_BY(mutex_);
  absl::flat_hash_set<TuningDigest> waiting_ GUARDED_BY(mutex_);
  // Problems without a choice, for want of evidence.
  absl::flat_hash_set<TuningDigest> below_floor_ GUARDED_BY(mutex_);
  // Problems of which the last ReadServed left a choice out, since it did not hold.
  mutable absl::flat_hash_set<TuningDigest> left_out_ GUARDED_BY(mutex_);
};

}  // namespace convtune::release
