// Values for tests of releases.
#pragma once

#include <string>
#include <vector>

#include "proto/model/release/release.h"
#include "tests/unit/db/sample_tunings.h"

namespace convtune::db {

inline Release SampleRelease(int64_t number) {
  Release release;
  release.number = number;
  release.author = "ann";
  release.reason = "cuDNN 9.19 on all nodes";
  release.create_time = absl::FromUnixMicros(1'700'000'000'000'000 + number);
  return release;
}

inline Release SampleCanary(int64_t number) {
  Release canary = SampleRelease(number);
  canary.state = ReleaseState::kCanary;
  canary.canary_permille = 50;
  return canary;
}

// Of tuning number n, with `engine` as the best: two choices. As it is read from
// `release`.
inline Portfolio SamplePortfolio(int n, int engine, int64_t release = 1) {
  Portfolio portfolio;
  portfolio.release = release;
  portfolio.key = SampleTuning(n).key;
  portfolio.evidence = Evidence::kMeasured;
  for (int place = 0; place < 2; ++place) {
    Candidate candidate;
    candidate.id = EngineConfig{engine + place, {{2, place}}};
    candidate.numerical_notes = NoteBit(NumericalNote::kTensorCore);
    candidate.behavior_notes = NoteBit(BehaviorNote::kRuntimeCompilation);
    if (place != 0) candidate.numerical_notes |= NoteBit(NumericalNote::kNondeterministic);
    candidate.workspace_bytes = 4096 - 4096 * place;
    candidate.heuristic_rank = place;
    candidate.median_us = 10.5 + place;
    candidate.status = CandidateStatus::kTimed;
    portfolio.choices.push_back(
        {candidate, place == 0 ? kRoleBest : kRoleNeutral | kRoleNoWorkspace});
  }
  return portfolio;
}

// The problem has no choice any more.
inline Portfolio NoChoice(int n, int64_t release) {
  Portfolio portfolio;
  portfolio.release = release;
  portfolio.key = SampleTuning(n).key;
  return portfolio;
}

inline WantedProblem SampleWanted(int n) {
  WantedProblem wanted;
  wanted.key = SampleTuning(n).key;
  wanted.misses = 10 + n;
  wanted.first_seen = absl::FromUnixMicros(1'700'000'000'000'000);
  wanted.last_seen = absl::FromUnixMicros(1'700'000'000'000'000 + n);
  wanted.attempts = 1;
  wanted.last_error = "no candidate ran";
  return wanted;
}

}  // namespace convtune::db
