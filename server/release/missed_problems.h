// MissedProblems counts the problems that programs asked for and that had no choice.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/model/release/release.h"

namespace convtune::release {

// Bounded: beyond the limit the one with the fewest misses, among equals the
// one not seen for longest, makes room. Not thread-safe.
class MissedProblems {
 public:
  static constexpr size_t kMostProblems = 10'000;
  static constexpr size_t kMostEnvironments = 32;
  // One that nobody asked for for so long is forgotten.
  static constexpr absl::Duration kForgetAfter = absl::Hours(30 * 24);

  explicit MissedProblems(size_t most_problems = kMostProblems,
                          size_t most_environments = kMostEnvironments)
      : most_problems_(most_problems), most_environments_(most_environments) {}

  // Adds what a store kept.
  void Load(const std::vector<WantedProblem>& wanted);
  // Returns false, and counts nothing, for one environment too many.
  bool AddMisses(const TuningKey& key, int64_t count, absl::Time now);
  // Takes note of a tuning that did not help. Returns how many did not; 0 for an unknown key.
  int AddFailure(const TuningKey& key, const std::string& error);
  void Erase(const TuningKey& key);
  void Forget(absl::Time now);

  size_t size() const { return problems_.size(); }
  // Problems of the environment.
  size_t CountOf(const std::string& environment_text) const;
  // Most wanted first; among equals the last seen first.
  std::vector<WantedProblem> MostWanted() const;

  // Changes since the last call, for the store.
  struct Changes {
    std::vector<WantedProblem> put;
    std::vector<TuningKey> drop;
    bool empty() const { return put.empty() && drop.empty(); }
  };
  Changes TakeChanges();
  // Makes them changes again, since the store did not take them.
  void GiveBack(const Changes& changes);

 private:
  void MakeRoom();

  const size_t most_problems_;
  const size_t most_environments_;
  std::map<TuningKey, WantedProblem> problems_;
  std::map<std::string, size_t> environments_;  // with the number of their problems
  std::set<TuningKey> changed_;                 // put if it is there, else dropped
};

}  // namespace convtune::release
