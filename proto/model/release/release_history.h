// A ReleaseHistory holds the releases of a daemon or of the fleet, and decides which
// ones may follow. It uses no clock and no disk.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model/release/release.h"

namespace convtune {

// A ReleaseDecision is an operator's decision on a release.
struct ReleaseDecision {
  std::string author;
  std::string reason;
  absl::Time time;
};

// Not thread-safe.
class ReleaseHistory {
 public:
  // Promoted releases whose choices a daemon keeps, so that they can be gone back
  // to; the fleet keeps all.
  static constexpr int kKept = 16;
  static constexpr int kAll = 0;

  ReleaseHistory() = default;
  // `releases` in order of number, of which the last `kept` promoted ones have
  // their choices.
  explicit ReleaseHistory(std::vector<Release> releases, int kept = kKept)
      : releases_(std::move(releases)), kept_(kept) {}

  // Takes the place of the one with its number, or is the newest.
  void Put(const Release& release);

  const std::vector<Release>& releases() const { return releases_; }
  const Release* Find(int64_t number) const;
  // The promoted release; nullptr before the first.
  const Release* promoted() const;
  // nullptr if none runs.
  const Release* canary() const;
  // True after a rollback or a canary that was rolled back, until the next
  // promotion: what was refused must not come back by itself.
  bool holds_back() const;
  // The oldest release whose choices are kept; 0 if all are.
  int64_t oldest_kept() const;

  // Each gives the release to write; none changes the history.

  // The first one, of what problems without a choice get.
  Release First(absl::Time now) const;
  // `canary_permille` above 0: served to that share of the processes. While a
  // canary runs: promotes it, or changes its share. FAILED_PRECONDITION without
  // `has_changes` where a new release would be needed.
  absl::StatusOr<Release> Promote(const ReleaseDecision& decision, int canary_permille,
                                  bool has_changes) const;
  // `to` 0: rolls a running canary back; without one goes back to the release
  // that was promoted before. NOT_FOUND: there is no such release;
  // FAILED_PRECONDITION: the history cannot go back to it.
  absl::StatusOr<Release> RollBack(const ReleaseDecision& decision, int64_t to) const;
  // The promoted release before the one whose choices `release` has; 0: none.
  int64_t Before(const Release& release) const;

 private:
  // A new release, promoted, with the number after the last one's.
  Release Next(const ReleaseDecision& decision) const;
  // The release whose choices `release` has: itself, unless it restores another.
  const Release& Origin(const Release& release) const;

  std::vector<Release> releases_;
  int kept_ = kKept;
};

}  // namespace convtune
