#include "server/release/portfolio.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "db/snapshot/snapshot.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/evidence.h"

namespace convtune::release {
namespace {

using Candidates = std::vector<const Candidate*>;

constexpr uint32_t kReorderNotes = NoteBit(BehaviorNote::kRequiresFilterInt8x32Reorder) |
                                   NoteBit(BehaviorNote::kRequiresBiasInt8x32Reorder);

// Adds the role to the candidate's choice, made if need be.
void AddRole(const Candidate* candidate, uint32_t role, std::vector<Choice>* choices) {
  if (candidate == nullptr) return;
  const auto known = std::find_if(choices->begin(), choices->end(), [candidate](const Choice& c) {
    return c.candidate.id == candidate->id;
  });
  if (known != choices->end()) {
    known->roles |= role;
    return;
  }
  choices->push_back({*candidate, role});
}

// The interposer's own rule.
bool KeepsToStock(const Candidate& c, const Candidate& stock) {
  return snapshot::IsNeutral(c.numerical_notes, c.workspace_bytes, stock.numerical_notes,
                             stock.workspace_bytes);
}

}  // namespace

Portfolio ChoosePortfolio(const lookup::IndexedTuning& indexed) {
  const lookup::KeptTuning& tuning = indexed.tuning;
  Portfolio portfolio;
  portfolio.key = tuning.key.Whole();
  portfolio.evidence = tuning.evidence;
  if (tuning.has(IncompleteReason::kUnjudged)) return portfolio;
  const Candidate* stock_of_both = indexed.stock ? &tuning.candidates[*indexed.stock] : nullptr;
  for (const Api api : {Api::kGraph, Api::kLegacy}) {
    const std::optional<size_t> own = StockIndex(tuning.candidates, api);
    const Candidate* stock = own ? &tuning.candidates[*own] : stock_of_both;
    Candidates eligible;
    for (size_t i = 0; i < tuning.candidates.size(); ++i) {
      const Candidate& c = tuning.candidates[i];
      const bool can_replace = (c.behavior_notes & kReorderNotes) == 0;
      if (!c.usable() || ApiOf(c.id) != api || !can_replace) continue;
      if (indexed.BanOf(i) == nullptr) eligible.push_back(&c);
    }
    // Where nothing beats a stock choice that could not be judged, programs are
    // left to it.
    const auto offer = [&](const Candidate* c, uint32_t role) {
      if (c != nullptr &&
          decision::IsUnjudgedStock(*c, tuning.incomplete_reasons, tuning.candidates)) {
        return;
      }
      AddRole(c, role, &portfolio.choices);
    };
    offer(PickWinner(eligible, stock), kRoleBest);
    if (stock != nullptr) {
      offer(PickWinnerIf(eligible, stock,
                         [stock](const Candidate* c) { return KeepsToStock(*c, *stock); }),
            kRoleNeutral);
    }
    offer(PickWinnerIf(eligible, stock, [](const Candidate* c) { return c->workspace_bytes == 0; }),
          kRoleNoWorkspace);
  }
  if (!portfolio.choices.empty() && indexed.stock_is_certain) {
    AddRole(stock_of_both, kRoleStock, &portfolio.choices);
  }
  return portfolio;
}

}  // namespace convtune::release
