// The words, table, JSON and CSV of `convtune upgrade-check`.
#pragma once

#include <string>
#include <vector>

#include "client/cli/app/context.h"
#include "client/cli/commands/upgrade/upgrade_changes.h"

namespace convtune::cli::commands::upgrade {

// The differences between two versions of cuDNN on one profile.
struct ProfileChanges {
  std::string profile;  // "nvidia-h200"
  Environment from;
  Environment to;
  std::vector<UpgradeChange> changes;  // one for each problem, in order
};

// The columns of a change.
output::Fields ColumnsOfUpgrade();
// Prints to io.out in the context's format, and says the summary in words. The
// table has the problems that changed, or all of them.
void PrintUpgrade(app::Context& context, const std::vector<AskedProblem>& problems,
                  const std::vector<ProfileChanges>& profiles, bool all);

// The HTML report with a section on these changes.
std::string UpgradeHtml(const std::vector<AskedProblem>& problems,
                        const std::vector<ProfileChanges>& profiles);

// A list for `convtune warm`: what to tune again under the new version, as CSV
// with the columns problem and count. A problem is in it if on any profile its
// first choice changed or its winner was lost.
std::string TuneList(const std::vector<AskedProblem>& problems,
                     const std::vector<ProfileChanges>& profiles);

}  // namespace convtune::cli::commands::upgrade
