#include "server/release/release_validity.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace convtune::release {
namespace {

bool HasRun(const std::vector<Candidate>& candidates, const CandidateId& candidate) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [&candidate](const Candidate& c) { return c.id == candidate && c.usable(); });
}

// Of those whose builds are known.
uint32_t NotesOf(const decision::LibraryVersions& libraries) {
  return (libraries.cublaslt.empty() ? 0 : NoteBit(BehaviorNote::kCublasLtDependency)) |
         (libraries.nvrtc.empty() ? 0 : NoteBit(BehaviorNote::kRuntimeCompilation));
}

}  // namespace

bool ReleaseValidity::Ran(const lookup::IndexedTuning& known, const CandidateId& candidate) const {
  // The index has but the best; the rest is asked for where it matters.
  if (HasRun(known.tuning.candidates, candidate)) return true;
  const absl::StatusOr<Tuning> whole = read_(known.tuning.key.Whole());
  return whole.ok() && HasRun(whole->candidates, candidate);
}

void ReleaseValidity::LeaveOutdated(Portfolio* portfolio) const {
  const auto libraries = index_->libraries().find(portfolio->key.environment_text);
  if (libraries == index_->libraries().end()) return;
  const uint32_t notes = NotesOf(libraries->second);
  if (notes == 0) return;
  const auto known = index_->Find(portfolio->key).tuning;
  const bool outdated = known != nullptr && known->IsOutdated();
  std::erase_if(portfolio->choices, [&](const Choice& choice) {
    if ((choice.roles & kServedRoles) == 0) return false;
    if (outdated) return true;
    if ((choice.candidate.behavior_notes & notes) == 0) return false;
    return known == nullptr || !Ran(*known, choice.candidate.id);
  });
}

Portfolio ReleaseValidity::HoldingPart(Portfolio portfolio, bool* holds) const {
  const size_t choices = portfolio.choices.size();
  LeaveOutdated(&portfolio);
  *holds = portfolio.choices.size() == choices;
  const auto all = index_->bans();
  if (all->empty()) return portfolio;
  const Bans bans = all->Of(portfolio.key);
  for (Choice& choice : portfolio.choices) {
    if ((choice.roles & kServedRoles) == 0 || bans.Find(choice.candidate.id) == nullptr) continue;
    // The notes of the stock choice stay what they are.
    choice.roles &= ~kServedRoles;
    *holds = false;
  }
  std::erase_if(portfolio.choices, [](const Choice& choice) { return choice.roles == 0; });
  return portfolio;
}

}  // namespace convtune::release
