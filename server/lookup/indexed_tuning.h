// An IndexedTuning is what the index keeps of a tuning: the candidates that can win
// under some constraints.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::lookup {

// Candidates that ran and were left out, as far as constraints see them. Small:
// a tuning has many, and the index a million tunings.
struct PrunedGroup {
  int64_t workspace_bytes = 0;
  double error = kNotCompared;
  uint32_t numerical_notes = 0;
  uint32_t count : 29 = 0;
  uint32_t legacy : 1 = 0;
  uint32_t capturable : 1 = 0;
  uint32_t banned : 1 = 0;

  static constexpr double kNotCompared = -1;
  // One that satisfies the same constraints.
  Candidate Example() const;
  friend bool operator==(const PrunedGroup& a, const PrunedGroup& b) = default;
};

// Values that all tunings of an environment share.
struct KeptEnvironment {
  std::string text;
  std::string name;  // short; empty if the text cannot be read
};

struct KeptKey {
  explicit KeptKey(const TuningKey& key);

  const std::string& environment_text() const { return environment->text; }
  TuningKey Whole() const { return {problem_text, environment->text}; }
  friend bool operator==(const KeptKey& a, const TuningKey& b) {
    return a.problem_text == b.problem_text && a.environment->text == b.environment_text;
  }

  std::string problem_text;
  const KeptEnvironment* environment;  // lives as long as the process
};

// The part of a tuning that look-ups need: candidates as far as they are kept, without
// samples. Provenance and conditions are in the store alone.
struct KeptTuning : TuningFacts {
  // Without candidates.
  explicit KeptTuning(const Tuning& tuning) : TuningFacts(tuning), key(tuning.key) {}
  // A Tuning with the kept candidates alone.
  Tuning ToTuning() const;

  KeptKey key;
  std::vector<Candidate> candidates;
};

struct IndexedTuning;

// IndexedBans are the bans that fit candidates of a tuning.
struct IndexedBans {
  std::vector<Bans::Shared> by_index;  // as tuning.candidates; nullptr: it is not banned
  Bans::Shared of_winner;              // of the one that would win without bans and constraints
  // Counts of the tuning's candidates that are neither usable() nor banned, by status.
  std::map<CandidateStatus, int> unusable;
};

// A StandIn is a tuning that was not measured, and is the answer in place of an outdated one that
// was.
struct StandIn {
  Tuning whole;                                   // what stands in, which no store has
  std::shared_ptr<const IndexedTuning> outdated;  // the measured tuning that is stored
};

// A tuning ready to be answered from. Immutable once it is in the index.
struct IndexedTuning {
  explicit IndexedTuning(const Tuning& whole) : tuning(whole) {}

  // The ban that keeps tuning.candidates[index] from being an answer; nullptr: none does.
  const Ban* BanOf(size_t index) const {
    return bans == nullptr ? nullptr : bans->by_index[index].get();
  }
  // Text form of the winner without constraints; empty if nothing ran, or all is banned.
  std::string Winner() const;
  // Short name of the key's environment.
  const std::string& EnvironmentName() const { return tuning.key.environment->name; }

  KeptTuning tuning;
  std::vector<PrunedGroup> pruned;
  TuningDigest digest;  // of the key
  int candidate_count = 0;
  int winner = -1;  // index in tuning.candidates, without constraints
  // Index in tuning.candidates of what cuDNN would choose for callers that take both APIs.
  std::optional<size_t> stock;
  // nullptr: none of the usable() candidates is banned.
  std::shared_ptr<const IndexedBans> bans;
  // cuDNN has refused every candidate that it lists before the stock choice.
  bool stock_is_certain = false;
  // Of the candidates that were skipped for memory, the smallest workspace.
  std::optional<int64_t> least_skipped_workspace;
  bool has_graph = false;   // a graph-API candidate ran
  bool has_legacy = false;  // a legacy-API candidate ran
  bool persisted = true;
  std::shared_ptr<const StandIn> stand_in;  // nullptr: this tuning does not stand in for another

  // Returns true if the measured tuning of the key is outdated, whether or not another
  // tuning stands in for it.
  bool IsOutdated() const { return stand_in != nullptr || tuning.has(IncompleteReason::kOutdated); }
};

// Total order, fastest first, in which every candidate comes after those in whose presence it can
// never be the answer. Both are usable().
bool DominatorsFirst(const Candidate& a, const Candidate& b);

// Keeps everything. `bans` are those of the tuning's key.
IndexedTuning KeepAll(const Tuning& tuning, const Bans& bans = {});

// The number of candidates that an answer names behind its winner.
inline constexpr size_t kRunnersUp = 2;

// Keeps the Pareto-best candidates over time, workspace, numerics,
// determinism, API and capture support, and besides them the stock choices,
// `pinned`, and the first of all with its kRunnersUp. Answers are those of
// KeepAll but for their runners_up under constraints (and for pruned
// candidates that are pinned later). A banned candidate displaces no other. `bans` are those
// of the tuning's key.
IndexedTuning KeepBest(const Tuning& tuning, const CandidateId* pinned, const Bans& bans = {});

}  // namespace convtune::lookup
