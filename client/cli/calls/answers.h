// BatchGetAll looks up any number of problems, and PrintAnswers prints the answers; GetTunings
// brings what the daemon's database holds of them, and Vary makes variants of one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/app/context.h"
#include "client/cli/output/fields.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/clock.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::calls {

// One problem's outcome, and where the problem was read. Value type.
struct AnswerRow {
  std::string source;
  v1::BatchGetResult result;
};

struct BatchAnswers {
  v1::Environment environment;
  std::vector<AnswerRow> rows;          // in the order asked
  std::vector<ProblemRowError> errors;  // rows that the daemon refused
  app::ExitCode code = app::ExitCode::kDone;
};

// `request` with these problems too.
template <typename Request>
Request WithProblems(Request request, const std::vector<const ProblemRow*>& rows) {
  for (const ProblemRow* row : rows) request.add_problems()->set_text(row->problem.ToText());
  return request;
}

// The rows in parts of which each fits one request: at most 10,000 problems, and below 4 MiB.
std::vector<std::vector<const ProblemRow*>> SplitIntoRequests(const std::vector<ProblemRow>& rows);

// Returns true if `status` refuses single problems and nothing else. Then says the
// refusals on io.err, adds them to `errors` and removes their problems from `rows`.
bool TakeRefused(app::Context& context, const absl::Status& status,
                 std::vector<const ProblemRow*>* rows, std::vector<ProblemRowError>* errors);

// Asks for all `rows` with `request`, whose problems are ignored, in the environment of the
// settings. Where the daemon refuses single problems, they are said on io.err and the others are
// asked again. Errors are said; what was answered before one is in the result. Without `timeout`
// that of the settings.
BatchAnswers BatchGetAll(app::Context& context, const v1::BatchGetRequest& request,
                         const std::vector<ProblemRow>& rows,
                         std::optional<absl::Duration> timeout = std::nullopt);

// The exit code after one outcome.
app::ExitCode ExitCodeOf(const v1::BatchGetResult& result);

// The problem with what is set in `overrides` in place of its own. nullopt if that
// is no problem.
std::optional<ConvProblem> Vary(const ConvProblem& problem, const ProblemOverrides& overrides);

// Tunings by the problem's text.
using TuningMap = std::map<std::string, v1::Tuning>;

// Adds the tunings of `rows`, with all of their candidates, to `tunings`. A problem
// without a tuning is left out; from `end` on no more problems are asked for. Errors are
// the daemon's.
absl::Status GetTunings(app::Context& context, const std::string& environment,
                        const std::vector<ProblemRow>& rows, TuningMap* tunings,
                        SteadyTime end = SteadyTime::InfiniteFuture());

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
// rows that were not asked for; `jobs` become "jobs" of the JSON document; nullptr: it has no
// such member.
void PrintAnswers(app::Context& context, const BatchAnswers& answers,
                  const std::vector<ProblemRowError>& invalid,
                  const std::vector<v1::TuningJob>* jobs);

}  // namespace convtune::cli::calls
