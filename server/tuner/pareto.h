// What the index keeps of a tuning: the candidates that can win under some
// constraints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/model/candidate.h"
#include "proto/model/constraints.h"
#include "proto/model/tuning.h"

namespace convtune {

// Candidates that ran and were left out, as far as constraints see them. Small:
// a tuning has many, and the index a million tunings.
struct PrunedGroup {
  int64_t workspace_bytes = 0;
  double error = kNotCompared;
  uint32_t numerical_notes = 0;
  int32_t count = 0;
  bool legacy = false;
  bool deterministic = false;
  bool capturable = false;

  static constexpr double kNotCompared = -1;
  // One that satisfies the same constraints.
  Candidate Example() const;
};

// A tuning ready to be answered from. Immutable once it is in the index.
struct IndexedTuning {
  Tuning tuning;  // without samples; candidates as far as they are kept
  std::vector<PrunedGroup> pruned;
  std::string environment_name;
  TuningDigest digest;  // of the key
  std::string winner;   // text form of the winner without constraints
  int candidate_count = 0;
  std::optional<size_t> stock;  // of callers of both APIs; index in tuning.candidates
  // Nothing that cuDNN lists before it might run: each was refused.
  bool stock_is_certain = false;
  // Of the candidates that were skipped for memory, the smallest workspace.
  std::optional<int64_t> least_skipped_workspace;
  bool has_graph = false;   // a graph-API candidate ran
  bool has_legacy = false;  // a legacy-API candidate ran
  bool persisted = true;
};

// True if `a` can never be the answer, nor change which one it is, while `b`
// is there: b keeps to every constraint that a keeps to, and is ordered before
// it. Both ran().
bool Dominates(const Candidate& b, const Candidate& a);

// Total order, fastest first, in which every candidate comes after those that
// dominate it. Both ran().
bool DominatorsFirst(const Candidate& a, const Candidate& b);

// Keeps everything.
IndexedTuning KeepAll(Tuning tuning);

// How many candidates an answer names behind its winner.
inline constexpr size_t kRunnersUp = 2;

// Keeps the Pareto-best candidates over time, workspace, numerics,
// determinism, API and capture support, and besides them the stock choices,
// `pinned`, and the first of all with its kRunnersUp. Answers are those of
// KeepAll but for their runners_up under constraints (and for pruned
// candidates that are pinned later).
IndexedTuning KeepBest(Tuning tuning, const CandidateId* pinned);

}  // namespace convtune
