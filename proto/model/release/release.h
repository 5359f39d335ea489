// Releases: numbered sets of choices, which unmodified programs are served.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/strings.h"
#include "proto/model/enums.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/digest.h"

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

  // Over what is served alone: two portfolios that run the same have the same
  // one.
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
  bool can_be_tuned = false;  // a device of the daemon has its environment; no store keeps this
  friend bool operator==(const WantedProblem&, const WantedProblem&) = default;
};

}  // namespace convtune
