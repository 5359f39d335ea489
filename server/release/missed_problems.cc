#include "server/release/missed_problems.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "proto/base/clock.h"

namespace convtune::release {
void MissedProblems::Load(const std::vector<WantedProblem>& wanted) {
  for (const WantedProblem& problem : wanted) {
    if (problems_.emplace(problem.key, problem).second) {
      ++environments_[problem.key.environment_text];
    }
  }
}

bool MissedProblems::AddMisses(const TuningKey& key, int64_t count, absl::Time now) {
  if (!environments_.contains(key.environment_text) && environments_.size() >= most_environments_) {
    return false;
  }
  auto [it, is_new] = problems_.try_emplace(key);
  WantedProblem& problem = it->second;
  if (is_new) {
    problem.key = key;
    problem.first_seen = ToMicros(now);
    ++environments_[key.environment_text];
  }
  const int64_t room = std::numeric_limits<int64_t>::max() - problem.misses;
  problem.misses += std::min(count, room);
  problem.last_seen = ToMicros(now);
  changed_.insert(key);
  if (problems_.size() > most_problems_) MakeRoom();
  return true;
}

void MissedProblems::MakeRoom() {
  const auto least =
      std::min_element(problems_.begin(), problems_.end(), [](const auto& a, const auto& b) {
        return std::tie(a.second.misses, a.second.last_seen) <
               std::tie(b.second.misses, b.second.last_seen);
      });
  Erase(TuningKey(least->first));
}

int MissedProblems::AddFailure(const TuningKey& key, const std::string& error) {
  const auto found = problems_.find(key);
  if (found == problems_.end()) return 0;
  found->second.last_error = error;
  changed_.insert(found->first);
  return ++found->second.attempts;
}

void MissedProblems::Erase(const TuningKey& key) {
  if (problems_.erase(key) == 0) return;
  if (--environments_[key.environment_text] == 0) environments_.erase(key.environment_text);
  changed_.insert(key);
}

void MissedProblems::Forget(absl::Time now) {
  std::vector<TuningKey> old;
  for (const auto& [key, problem] : problems_) {
    if (now - problem.last_seen > kForgetAfter) old.push_back(key);
  }
  for (const TuningKey& key : old) Erase(key);
}

size_t MissedProblems::CountOf(const std::string& environment_text) const {
  const auto found = environments_.find(environment_text);
  return found == environments_.end() ? 0 : found->second;
}

std::vector<WantedProblem> MissedProblems::MostWanted() const {
  std::vector<WantedProblem> wanted;
  for (const auto& [key, problem] : problems_) wanted.push_back(problem);
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const WantedProblem& a, const WantedProblem& b) {
                     return std::tie(a.misses, a.last_seen) > std::tie(b.misses, b.last_seen);
                   });
  return wanted;
}

MissedProblems::Changes MissedProblems::TakeChanges() {
  Changes changes;
  for (const TuningKey& key : changed_) {
    const auto found = problems_.find(key);
    if (found != problems_.end()) {
      changes.put.push_back(found->second);
    } else {
      changes.drop.push_back(key);
    }
  }
  changed_.clear();
  return changes;
}

void MissedProblems::GiveBack(const Changes& changes) {
  for (const WantedProblem& problem : changes.put) changed_.insert(problem.key);
  for (const TuningKey& key : changes.drop) changed_.insert(key);
}

}  // namespace convtune::release
