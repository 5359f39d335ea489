#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/model/tuning/errata.h"

namespace convtune::cli::commands::upgrade {
namespace {

// Notes that are newer than our enumerations are numbers: "numerical_note_14".
std::set<std::string> NotesOf(const Candidate& candidate) {
  std::set<std::string> notes;
  for (int bit = 0; bit < 32; ++bit) {
    const auto add = [&](uint32_t mask, const std::string& name, const char* kind) {
      if ((mask >> bit & 1U) == 0) return;
      notes.insert(name == "invalid" ? absl::StrCat(kind, "_note_", bit) : name);
    };
    add(candidate.numerical_notes, std::string(Name(static_cast<NumericalNote>(bit))), "numerical");
    add(candidate.behavior_notes, std::string(Name(static_cast<BehaviorNote>(bit))), "behavior");
  }
  return notes;
}

std::set<std::string> TextsOf(const std::vector<Candidate>& candidates) {
  std::set<std::string> texts;
  for (const Candidate& candidate : candidates) texts.insert(ToText(candidate.id));
  return texts;
}

// Those of `a` that are not in `b`.
std::vector<std::string> Without(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::vector<std::string> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

// Lists are in the order of modes: where a first choice is mode FALLBACK's, the
// others list nothing that can be built.
std::string ModeOf(const Candidate& candidate) {
  if (candidate.places.mode_a > 0) return "A";
  if (candidate.places.mode_b > 0) return "B";
  return candidate.places.fallback > 0 ? "FALLBACK" : "";
}

FirstChoiceChange CompareChoices(const Candidate* from, const Candidate* to) {
  if (from == nullptr && to == nullptr) return FirstChoiceChange::kNone;
  if (from == nullptr) return FirstChoiceChange::kGained;
  if (to == nullptr) return FirstChoiceChange::kLost;
  if (from->id == to->id) return FirstChoiceChange::kSame;
  const auto* const before = std::get_if<EngineConfig>(&from->id);
  const auto* const after = std::get_if<EngineConfig>(&to->id);
  const bool same_engine =
      before != nullptr && after != nullptr && before->engine_index == after->engine_index;
  return same_engine ? FirstChoiceChange::kKnobs : FirstChoiceChange::kEngine;
}

}  // namespace

std::string Word(FirstChoiceChange change) {
  constexpr const char* kWords[] = {"same", "knobs", "engine", "gained", "lost", "none", "unknown"};
  return kWords[static_cast<size_t>(change)];
}

UpgradeChange CompareListings(const AskedProblem& asked, const ListedProblem& from,
                              const ListedProblem& to, const std::string& environment) {
  UpgradeChange change;
  change.winner = asked.winner;
  const Candidate* const before = from.first ? &from.listed[*from.first] : nullptr;
  const Candidate* const after = to.first ? &to.listed[*to.first] : nullptr;
  if (!from.error.empty() || !to.error.empty()) {
    change.choice = FirstChoiceChange::kUnknown;
    change.reason = !from.error.empty() ? from.error : to.error;
  } else {
    change.choice = CompareChoices(before, after);
    change.reason = !to.refusal.empty() ? to.refusal : from.refusal;
  }
  if (before != nullptr) {
    change.from = ToText(before->id);
    change.from_mode = ModeOf(*before);
    change.from_workspace = before->workspace_bytes;
  }
  if (after != nullptr) {
    change.to = ToText(after->id);
    change.to_mode = ModeOf(*after);
    change.to_workspace = after->workspace_bytes;
    const Bans::Shared ban =
        Bans().With(ShippedBans()).Find(after->id, {asked.problem.ToText(), environment});
    if (ban != nullptr) change.erratum = ban->NameAndReason();
  }
  if (before != nullptr && after != nullptr) {
    change.last_resort = change.from_mode != "FALLBACK" && change.to_mode == "FALLBACK";
    const std::set<std::string> old_notes = NotesOf(*before), new_notes = NotesOf(*after);
    change.notes_added = Without(new_notes, old_notes);
    change.notes_removed = Without(old_notes, new_notes);
  }
  if (change.choice == FirstChoiceChange::kUnknown) return change;
  const std::set<std::string> old_texts = TextsOf(from.listed), new_texts = TextsOf(to.listed);
  change.came = Without(new_texts, old_texts);
  change.went = Without(old_texts, new_texts);
  change.winner_lost =
      !asked.winner.empty() && to.winner_builds == false && from.winner_builds != false;
  return change;
}

UpgradeSummary UpgradeSummary::Of(const std::vector<UpgradeChange>& changes) {
  UpgradeSummary summary;
  for (const UpgradeChange& change : changes) {
    ++summary.problems;
    summary.choice += change.choice_changed() ? 1 : 0;
    summary.engine += change.choice == FirstChoiceChange::kEngine ? 1 : 0;
    summary.last_resort += change.last_resort ? 1 : 0;
    summary.errata += change.erratum.empty() ? 0 : 1;
    summary.notes += change.notes_changed() ? 1 : 0;
    summary.winners += change.winner.empty() ? 0 : 1;
    summary.winners_lost += change.winner_lost ? 1 : 0;
    summary.choices_lost += change.choice == FirstChoiceChange::kLost ? 1 : 0;
    summary.lost += change.lost() ? 1 : 0;
    summary.unknown += change.choice == FirstChoiceChange::kUnknown ? 1 : 0;
    if (change.from.empty() || change.to.empty()) continue;
    const int64_t growth = change.to_workspace - change.from_workspace;
    summary.workspace_grew += growth > 0 ? 1 : 0;
    summary.workspace_shrank += growth < 0 ? 1 : 0;
    if (growth > summary.most_growth_to - summary.most_growth_from) {
      summary.most_growth_from = change.from_workspace;
      summary.most_growth_to = change.to_workspace;
    }
  }
  return summary;
}

}  // namespace convtune::cli::commands::upgrade
