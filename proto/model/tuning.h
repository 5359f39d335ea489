// A tuning: the candidates and measurements of one problem in one environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/model/candidate.h"
#include "proto/model/conditions.h"
#include "proto/model/conv_problem.h"
#include "proto/model/digest.h"
#include "proto/model/environment.h"

namespace convtune {

// Value type. Microsecond resolution of times survives storage.
struct Tuning {
  TuningKey key;
  Provenance provenance;
  std::vector<Candidate> candidates;  // ranked: see RankCandidates in server/tuner
  Evidence evidence = Evidence::kNone;
  Origin origin = Origin::kLocal;
  absl::Time tune_time = absl::UnixEpoch();
  absl::Duration elapsed;
  int64_t memory_budget_bytes = 0;  // 0: no limit but the device's
  std::string incomplete_reason;    // empty: complete
  // Of the race; kNone and 0 where nothing was timed.
  StopReason stop_reason = StopReason::kNone;
  int rounds = 0;
  CacheState cache_state = CacheState::kInputHot;  // of the candidates' samples_us
  Conditions conditions;

  friend bool operator==(const Tuning&, const Tuning&) = default;
};

// An operator's decision that overrides the ranking.
struct Pin {
  TuningKey key;
  CandidateId candidate;
  std::string reason;
  absl::Time create_time = absl::UnixEpoch();
  std::optional<absl::Time> expire_time;
  friend bool operator==(const Pin&, const Pin&) = default;
};

// A candidate that took its worker down.
struct QuarantineEntry {
  TuningKey key;
  CandidateId candidate;
  std::string reason;
  absl::Time create_time = absl::UnixEpoch();
  friend bool operator==(const QuarantineEntry&, const QuarantineEntry&) = default;
};

// True if `candidate` should replace `stored` under the same key: better
// evidence; between equals the more samples, then the newer.
bool Supersedes(const Tuning& candidate, const Tuning& stored);

}  // namespace convtune
