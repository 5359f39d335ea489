#include "server/tuner/wanted_list.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace convtune {
namespace {

absl::Time ToMicros(absl::Time time) { return absl::FromUnixMicros(absl::ToUnixMicros(time)); }

}  // namespace

void WantedList::Load(const std::vector<WantedProblem>& wanted) {
  for (const WantedProblem& problem : wanted) {
    if (wanted_.emplace(Texts(problem.key), problem).second) {
      ++environments_[problem.key.environment_text];
    }
  }
}

bool WantedList::AddMisses(const TuningKey& key, int64_t count, absl::Time now) {
  const KeyTexts texts = Texts(key);
  if (!environments_.contains(key.environment_text) && environments_.size() >= most_environments_) {
    return false;
  }
  auto [it, is_new] = wanted_.try_emplace(texts);
  WantedProblem& problem = it->second;
  if (is_new) {
    problem.key = key;
    problem.first_seen = ToMicros(now);
    ++environments_[key.environment_text];
  }
  const int64_t room = std::numeric_limits<int64_t>::max() - problem.misses;
  problem.misses += std::min(count, room);
  problem.last_seen = ToMicros(now);
  changed_.insert(texts);
  if (wanted_.size() > most_problems_) MakeRoom();
  return true;
}

void WantedList::MakeRoom() {
  const auto least =
      std::min_element(wanted_.begin(), wanted_.end(), [](const auto& a, const auto& b) {
        return std::tie(a.second.misses, a.second.last_seen) <
               std::tie(b.second.misses, b.second.last_seen);
      });
  EraseTexts(KeyTexts(least->first));
}

void WantedList::AddFailure(const TuningKey& key, const std::string& error) {
  const auto found = wanted_.find(Texts(key));
  if (found == wanted_.end()) return;
  ++found->second.attempts;
  found->second.last_error = error;
  changed_.insert(found->first);
}

void WantedList::EraseTexts(const KeyTexts& texts) {
  if (wanted_.erase(texts) == 0) return;
  if (--environments_[texts.first] == 0) environments_.erase(texts.first);
  changed_.insert(texts);
}

void WantedList::Erase(const TuningKey& key) { EraseTexts(Texts(key)); }

void WantedList::Forget(absl::Time now) {
  std::vector<KeyTexts> old;
  for (const auto& [texts, problem] : wanted_) {
    if (now - problem.last_seen > kForgetAfter) old.push_back(texts);
  }
  for (const KeyTexts& texts : old) EraseTexts(texts);
}

std::vector<WantedProblem> WantedList::MostWanted(const std::string& environment_text) const {
  std::vector<WantedProblem> wanted;
  for (const auto& [texts, problem] : wanted_) {
    if (environment_text.empty() || texts.first == environment_text) wanted.push_back(problem);
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const WantedProblem& a, const WantedProblem& b) {
                     return std::tie(a.misses, a.last_seen) > std::tie(b.misses, b.last_seen);
                   });
  return wanted;
}

WantedList::Changes WantedList::TakeChanges() {
  Changes changes;
  for (const KeyTexts& texts : changed_) {
    const auto found = wanted_.find(texts);
    if (found != wanted_.end()) {
      changes.put.push_back(found->second);
    } else {
      changes.drop.push_back({texts.second, texts.first});
    }
  }
  changed_.clear();
  return changes;
}

void WantedList::GiveBack(const Changes& changes) {
  for (const WantedProblem& problem : changes.put) changed_.insert(Texts(problem.key));
  for (const TuningKey& key : changes.drop) changed_.insert(Texts(key));
}

}  // namespace convtune
