// A ProfileListing is what one cuDNN offers for problems on a GPU that a profile describes: asked
// of a convtune-worker that loads that cuDNN. An UpgradeChange is what another cuDNN changes for
// one problem, as far as lists and plans tell it, and PrintUpgrade prints what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/program.h"
#include "client/cli/commands/upgrade/cudnn_cache.h"
#include "convtune/v1/tuning.pb.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::commands::upgrade {

app::NewVerb NewUpgradeCheckCommand, NewWhyCommand;

// A problem, and the candidate that is stored for it.
struct AskedProblem {
  ConvProblem problem;
  int64_t count = 1;   // how often the workload runs it
  std::string winner;  // text form; empty: none is stored
};

// Value type.
struct ListedProblem {
  std::string error;    // why nothing is known of it: the worker died; empty: it did not
  std::string refusal;  // why cuDNN offers nothing, in its words; empty: it does
  // The candidates by modes A, B and FALLBACK, in their order, of which nothing was timed. FAILED:
  // it was built, and cannot be.
  v1::Tuning tuning;
  std::optional<bool> winner_builds;  // absent: no winner is stored

  // The first that can be built; nullptr: none.
  const v1::Candidate* First() const;
};

struct ProfileListing {
  Environment environment;              // as the worker says it
  std::vector<ListedProblem> problems;  // in the order asked for
};

// The candidates that are built, each with its workspace.
enum class Build { kFirst, kAll };

// Starts `worker` with that cuDNN and the profile's file, and asks for all of
// them. A worker that dies is started again for the next problem. Errors:
// FAILED_PRECONDITION in the worker's words if none can be started, and where the
// worker has another version than `cudnn` says.
absl::StatusOr<ProfileListing> ListOnProfile(const std::string& worker, const CudnnToLoad& cudnn,
                                             const std::string& profile_file,
                                             const std::vector<AskedProblem>& problems,
                                             Build build = Build::kFirst);

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

// Value type.
struct UpgradeChange {
  std::string problem;  // text form
  int64_t count = 1;    // how often the workload runs it
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
  bool engine_changed() const { return choice == FirstChoiceChange::kEngine; }
  bool choice_lost() const { return choice == FirstChoiceChange::kLost; }
  bool unknown() const { return choice == FirstChoiceChange::kUnknown; }
  bool workspace_grew() const { return to_workspace > from_workspace; }  // also from no choice
  // In bytes; 0 unless both versions have a first choice.
  int64_t growth() const { return from.empty() || to.empty() ? 0 : to_workspace - from_workspace; }
  bool grew() const { return growth() > 0; }
  bool shrank() const { return growth() < 0; }
  bool has_erratum() const { return !erratum.empty(); }
  bool has_winner() const { return !winner.empty(); }
  bool notes_changed() const { return !notes_added.empty() || !notes_removed.empty(); }
  bool lost() const { return winner_lost || choice_lost(); }
  bool any() const {
    return choice_changed() || last_resort || has_erratum() || from_workspace != to_workspace ||
           notes_changed() || lost() || unknown();
  }
};

// Compares what two versions of cuDNN offer for `asked` on one profile. `environment`: the text of
// the new version's, whose errata are looked for.
UpgradeChange CompareListings(const AskedProblem& asked, const ListedProblem& from,
                              const ListedProblem& to, const std::string& environment);

// The differences between two versions of cuDNN on one profile.
struct ProfileChanges {
  std::string profile;                 // "nvidia-h200"
  std::string from, to;                // versions of cuDNN
  std::vector<UpgradeChange> changes;  // one for each problem, in order

  // The change whose workspace grew most; nullptr: there are no changes.
  const UpgradeChange* MostGrowth() const;
};

// Returns the name and the file of each profile. INVALID_ARGUMENT names one that is not found.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> FindProfiles(
    const std::vector<std::string>& names);

// The columns of a change.
output::Fields ColumnsOfUpgrade();
// Prints to io.out in the context's format, and says the summary in words. The
// table has the problems that changed, or all of them.
void PrintUpgrade(app::Context& context, const std::vector<ProfileChanges>& profiles, bool all);

// The HTML report with a section on these changes.
std::string UpgradeHtml(const std::vector<ProfileChanges>& profiles);

// A list for `convtune warm`: what to tune again under the new version, as CSV
// with the columns problem and count. A problem is in it if on any profile its
// first choice changed or its winner was lost.
std::string TuneList(const std::vector<ProfileChanges>& profiles);

}  // namespace convtune::cli::commands::upgrade
