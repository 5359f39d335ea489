// Prints answers in the three formats.
#pragma once

#include <string>
#include <vector>

#include "client/cli/calls/batch_get.h"
#include "client/cli/output/table.h"

namespace convtune::cli::calls {

output::Color EvidenceColor(v1::Evidence evidence);
// "measured", or "measured (simulated)" where the environment, by name, is a GPU made of software.
std::string EvidenceWord(v1::Evidence evidence, std::string_view environment);
// Says that `count` problems are not published, for their evidence is below `least`.
std::string NotPublishedWord(int64_t count, v1::Evidence least);

// problem, winner, evidence, time, workspace, runners-up.
output::Table AnswerTable(const std::vector<AnswerRow>& rows);
// Writes the answers in the context's format to its output. `invalid` are the
// rows that were not asked for; `jobs` is a JSON array for the document's
// "jobs", or empty.
void PrintAnswers(app::Context& context, const BatchAnswers& answers,
                  const std::vector<ProblemRowError>& invalid, const std::string& jobs);

}  // namespace convtune::cli::calls
