// A tuning: the candidates and measurements of one problem in one environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/conditions.h"

namespace convtune {

// What a tuning says of itself beside its candidates and where they were measured. Value type.
// Microsecond resolution of times survives storage.
struct TuningFacts {
  // The reasons for which it is not MEASURED: a mask of ReasonBit, and the same in words
  // for people, with counts. Decisions depend on the mask alone. See AddReason.
  std::string incomplete_message;
  uint32_t incomplete_reasons = 0;
  absl::Time tune_time = absl::UnixEpoch();
  absl::Duration elapsed;
  int64_t memory_budget_bytes = 0;  // 0: no limit but the device's
  Evidence evidence = Evidence::kNone;
  Origin origin = Origin::kLocal;
  StopReason stop_reason = StopReason::kNone;      // of the race; kNone where nothing was timed
  CacheState cache_state = CacheState::kInputHot;  // of the candidates' samples_ns

  bool has(IncompleteReason reason) const { return (incomplete_reasons & ReasonBit(reason)) != 0; }

  friend bool operator==(const TuningFacts&, const TuningFacts&) = default;
};

// Value type.
struct Tuning : TuningFacts {
  TuningKey key;
  Provenance provenance;
  std::vector<Candidate> candidates;  // ranked: see RankCandidates in ranking.h
  int rounds = 0;                     // of the race; 0 where nothing was timed
  Conditions conditions;

  friend bool operator==(const Tuning&, const Tuning&) = default;
};

// Says that the tuning is incomplete for `reason`, `words` to people.
void AddReason(IncompleteReason reason, std::string_view words, Tuning* tuning);

// An operator's decision that overrides the ranking.
struct Pin {
  TuningKey key;
  CandidateId candidate;
  std::string reason;
  absl::Time create_time = absl::UnixEpoch();
  std::optional<absl::Time> expire_time;
  int64_t fleet_pin = 0;  // the fleet's number of it; 0: it was made on the daemon
  friend bool operator==(const Pin&, const Pin&) = default;
};

// Whether a pin or a ban of that time has no effect any more.
inline bool HasExpired(const std::optional<absl::Time>& expire_time, absl::Time now) {
  return expire_time.has_value() && *expire_time <= now;
}

// The version of how the worker runs, checks and times candidates. Raised by hand when that
// changes: what a worker of a lower number is quarantined for is then tried again. Not
// the program's version, which builds during development share, and which has
// no order that a build from another branch would keep to.
inline constexpr int kCheckerVersion = 1;

// A candidate that is not tried again, and is no answer.
struct QuarantineEntry {
  TuningKey key;
  CandidateId candidate;
  QuarantineReason reason = QuarantineReason::kCrashed;
  std::string message;  // for people
  absl::Time create_time = absl::UnixEpoch();
  absl::Duration hang_budget;  // kHung: the tuning's budget that it hung with; else 0
  int checker_version = 0;     // of the worker: see kCheckerVersion; 0: unknown

  // True if a tuning with this budget, by a worker of this version, leaves the candidate out:
  // what hung may only have been slow, and a worker that checks or times in another
  // way may come to another conclusion.
  bool HoldsFor(absl::Duration budget, int worker_checker_version) const;

  friend bool operator==(const QuarantineEntry&, const QuarantineEntry&) = default;
};

// The standing of a tuning: the part of its quality that neither more samples
// nor a later time make up for. The greater standing is better.
struct TuningStanding {
  Evidence evidence = Evidence::kNone;
  bool full_listing = false;  // not only a look-up's first configs
  bool clean = false;         // Conditions::clean, by a clock that passed its self-check
  friend auto operator<=>(const TuningStanding&, const TuningStanding&) = default;
};
TuningStanding StandingOf(const Tuning& tuning);

// True if a memory budget of `wide` bytes allows more than `narrow`; 0 is no limit.
bool AllowsMore(int64_t wide, int64_t narrow);

// True if `made` is better than `stored`, which has the same key: by its
// standing; between equals the tuning with the larger memory budget, then with
// more samples, then the newer one. A `forced` tuning also replaces what has the
// same standing. The daemon, imports, merges and layers all decide by this; the
// fleet decides by the standing, then by the order of delivery.
bool Supersedes(const Tuning& made, const Tuning& stored, bool forced = false);

}  // namespace convtune
