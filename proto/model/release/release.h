// Releases: numbered sets of choices, which unmodified programs are served. A ReleaseHistory holds
// those of a daemon or of the fleet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/strings.h"
#include "proto/model/enums.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/candidate.h"

namespace convtune {

// Persisted: never renumber.
enum class ReleaseState {
  kPromoted = 1,    // was promoted; the newest such one is served
  kCanary = 2,      // served to a share of the processes
  kRolledBack = 3,  // a canary that was rolled back
};

// Roles of a choice, as bits; one choice may have several. Persisted.
inline constexpr uint32_t kRoleBest = 1;
// Its numerics are the stock choice's or a part of them, it is deterministic
// where that is, and it needs no more workspace.
inline constexpr uint32_t kRoleNeutral = 2;
inline constexpr uint32_t kRoleNoWorkspace = 4;
// The stock choice, kept for its notes and workspace; with no other role it is
// not served.
inline constexpr uint32_t kRoleStock = 8;
inline constexpr uint32_t kServedRoles = kRoleBest | kRoleNeutral | kRoleNoWorkspace;

// A Choice is a candidate, without samples, and its roles. Value type.
struct Choice {
  Candidate candidate;
  uint32_t roles = 0;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// A Portfolio is the set of choices that a problem is served: up to three for each API,
// each API's in the order of the roles, and the stock choice. A portfolio without
// choices says that the problem has no choice, or none any more. Value type.
struct Portfolio {
  TuningKey key;
  Evidence evidence = Evidence::kNone;
  std::vector<Choice> choices;
  int64_t release = 0;  // that it came with; a store sets it

  // A checksum of the choices that are served and their roles: two portfolios of which the same is
  // served have the same one.
  uint64_t Fingerprint() const {
    std::string text;
    for (const Choice& choice : choices) {
      const uint32_t roles = choice.roles & kServedRoles;
      if (roles != 0) AppendTo(&text, ToText(choice.candidate.id), " ", roles, "\n");
    }
    return Checksum64(text);
  }
  friend bool operator==(const Portfolio&, const Portfolio&) = default;
};

// Value type. Times have microsecond resolution.
struct Release {
  int64_t number = 0;  // from 1
  ReleaseState state = ReleaseState::kPromoted;
  int canary_permille = 0;  // share of processes, in thousandths; 0 unless it is or was a canary
  int64_t restores = 0;     // a rollback: number of the release whose choices it has; else 0
  std::string author;
  std::string reason;
  absl::Time create_time = absl::UnixEpoch();
  // The author and the reason of a canary's promotion or rollback; empty for others.
  std::string end_author;
  std::string end_reason;
  std::optional<absl::Time> end_time;
  friend bool operator==(const Release&, const Release&) = default;
};

// A problem that programs asked for and had no choice for. Value type.
struct WantedProblem {
  TuningKey key;
  int64_t misses = 0;
  absl::Time first_seen = absl::UnixEpoch();
  absl::Time last_seen = absl::UnixEpoch();
  int attempts = 0;  // tunings of it that failed
  std::string last_error;
  friend bool operator==(const WantedProblem&, const WantedProblem&) = default;
};

// A ReleaseDecision is an operator's decision on a release.
struct ReleaseDecision {
  std::string author;
  std::string reason;
  absl::Time time;
};

// Decides which releases may follow. It uses no clock and no disk. Not thread-safe.
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

  // Puts `release` in the place of the one that has its number, or in the order of numbers.
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
