// An UpgradeChange is what another cuDNN changes for one problem, as far as lists
// and plans tell it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/commands/upgrade/profile_listing.h"

namespace convtune::cli::commands::upgrade {

// The change of the first choice that can be built.
enum class FirstChoiceChange {
  kSame,
  kKnobs,    // the same engine, other knobs
  kEngine,   // another engine
  kGained,   // the new version alone has a first choice
  kLost,     // the old version alone has a first choice
  kNone,     // neither version has a first choice
  kUnknown,  // a worker died
};

// "same", "knobs", "engine", "gained", "lost", "none", "unknown".
std::string Word(FirstChoiceChange change);

// Value type.
struct UpgradeChange {
  FirstChoiceChange choice = FirstChoiceChange::kSame;
  std::string from, to;  // the first choices' text forms; empty: the version has no choice
  std::string from_mode, to_mode;  // the first that lists it: "A", "B", "FALLBACK"; empty: none
  // Modes A and B list nothing any more that can be built: mode FALLBACK's choice is left.
  bool last_resort = false;
  int64_t from_workspace = 0;
  int64_t to_workspace = 0;
  std::vector<std::string> notes_added;  // of the first choice, numerical and behaviour
  std::vector<std::string> notes_removed;
  std::vector<std::string> came;  // candidates, text forms
  std::vector<std::string> went;
  std::string erratum;  // the ban that came with convtune and fits `to`; empty: none does
  std::string winner;   // that is stored; empty: none
  // It cannot be built under the new version, and can, as far as is known, under the old.
  bool winner_lost = false;
  std::string reason;  // of kUnknown, kNone, kGained and kLost; may be empty

  bool choice_changed() const {
    return choice != FirstChoiceChange::kSame && choice != FirstChoiceChange::kNone &&
           choice != FirstChoiceChange::kUnknown;
  }
  bool workspace_grew() const { return to_workspace > from_workspace; }
  bool notes_changed() const { return !notes_added.empty() || !notes_removed.empty(); }
  bool lost() const { return winner_lost || choice == FirstChoiceChange::kLost; }
  bool any() const {
    return choice_changed() || last_resort || !erratum.empty() || from_workspace != to_workspace ||
           notes_changed() || lost() || choice == FirstChoiceChange::kUnknown;
  }
};

// Compares what two versions of cuDNN offer for `asked` on one profile. `environment`: the text of
// the new version's, whose errata are looked for.
UpgradeChange CompareListings(const AskedProblem& asked, const ListedProblem& from,
                              const ListedProblem& to, const std::string& environment);

// An UpgradeSummary counts the problems by the kind of their change.
struct UpgradeSummary {
  int problems = 0;
  int choice = 0;  // another first choice, engine included
  int engine = 0;  // with another engine
  int last_resort = 0;
  int errata = 0;  // first choices that are known to be wrong
  int workspace_grew = 0;
  int workspace_shrank = 0;
  int notes = 0;
  int winners = 0;  // that are stored
  int winners_lost = 0;
  int choices_lost = 0;  // problems that have no first choice any more
  int lost = 0;          // problems with either
  int unknown = 0;
  int64_t most_growth_from = 0;  // the workspace that grew most, in bytes
  int64_t most_growth_to = 0;

  static UpgradeSummary Of(const std::vector<UpgradeChange>& changes);
};

}  // namespace convtune::cli::commands::upgrade
