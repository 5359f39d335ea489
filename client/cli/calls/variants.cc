#include "client/cli/calls/variants.h"

#include <sstream>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::calls {

std::optional<ConvProblem> Vary(const ConvProblem& problem, const ProblemOverrides& overrides) {
  std::istringstream text(problem.ToText());
  const ProblemList list = ReadProblemList(text, "", overrides);
  return list.rows.empty() ? std::nullopt : std::make_optional(list.rows[0].problem);
}

absl::Status GetTunings(app::Context& context, const std::string& environment,
                        const std::vector<ProblemRow>& rows, TuningMap* tunings, SteadyTime end) {
  ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
  for (const ProblemRow& row : rows) {
    const std::string text = row.problem.ToText();
    if (tunings->count(text) > 0) continue;
    if (SteadyTime::Now() >= end) break;
    v1::GetTuningRequest request;
    request.set_environment(environment);
    request.mutable_problem()->set_text(text);
    auto tuning = client->Call<v1::Tuning>(request);
    if (tuning.ok()) {
      tunings->emplace(text, *std::move(tuning));
    } else if (!absl::IsNotFound(tuning.status())) {
      return tuning.status();
    }
  }
  return absl::OkStatus();
}

}  // namespace convtune::cli::calls
