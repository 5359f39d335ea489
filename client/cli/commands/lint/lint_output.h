// Prints what `convtune lint` found.
#pragma once

#include <string>
#include <vector>

#include "client/cli/app/context.h"
#include "client/cli/commands/lint/findings.h"

namespace convtune::cli::commands::lint {

// The findings of a lint run, and the environment they hold for. Value type.
struct LintReport {
  std::string environment;
  int problems = 0;
  std::vector<LintFinding> findings;
  std::vector<VariantSummary> variants;  // the model as it is first; empty: not asked for

  // "23 convolutions: 0 errors, 1 warning, 2 notices".
  std::string CountWords() const;
};

// The columns of a finding, and a finding for their headings.
output::Fields FindingFields(const LintFinding& finding);
LintFinding AnyFinding();
// For people.
std::string LintText(const LintReport& report, int width, bool color);
// In the context's format; for people LintText.
void PrintLint(app::Context& context, const LintReport& report);
// Workflow commands of GitHub Actions, which become annotations:
// "::warning file=list.csv,line=3,title=convtune tensor-cores::...".
std::string LintGithub(const LintReport& report);

}  // namespace convtune::cli::commands::lint
