// Prints answers in the three formats.
#pragma once

#include <string>
#include <vector>

#include "client/cli/calls/batch_get.h"
#include "client/cli/output/fields.h"

namespace convtune::cli::calls {

output::Color EvidenceColor(v1::Evidence evidence);
// "measured", or "measured (simulated)" where the environment, by name, is a GPU made of software.
std::string EvidenceWord(v1::Evidence evidence, std::string_view environment);
// The evidence's word, which in a table is EvidenceWord in its colour.
output::Value EvidenceValue(v1::Evidence evidence, std::string_view environment);
// Says that `count` problems are not published, for their evidence is below `least`.
std::string NotPublishedWord(int64_t count, v1::Evidence least);

// The columns of an answer, or of a miss in `environment`; deploy/docs/cli.md says what those of
// CSV are.
output::Fields AnswerFields(const AnswerRow& row, const v1::Environment& environment);
// Writes the answers in the context's format to its output. `invalid` are the
// rows that were not asked for; `jobs` are the document's "jobs", which it has
// not if that is nullptr.
void PrintAnswers(app::Context& context, const BatchAnswers& answers,
                  const std::vector<ProblemRowError>& invalid,
                  const std::vector<v1::TuningJob>* jobs);

}  // namespace convtune::cli::calls
