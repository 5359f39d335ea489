#include "client/cli/advise_ceilings.h"

#include <algorithm>
#include <vector>

#include "client/cli/batch_get.h"

namespace convtune {
namespace {

constexpr size_t kMostProblems = 10'000;
constexpr int kPageSize = 1000;

std::vector<ProblemRow> MeasuredProblems(Context& context, const std::set<std::string>& but) {
  std::vector<ProblemRow> problems;
  const auto client = context.Connect();
  if (!client.ok()) return problems;
  v1::ListTuningsRequest request;
  request.set_environment(context.settings().environment);
  request.set_page_size(kPageSize);
  do {
    const auto page = (*client)->ListTunings(request);
    if (!page.ok()) break;
    for (const v1::Tuning& tuning : page->tunings()) {
      if (tuning.evidence() < v1::EVIDENCE_INCOMPLETE || but.count(tuning.problem_text()) > 0) {
        continue;
      }
      auto problem = ConvProblem::Parse(tuning.problem_text());
      if (problem.ok()) problems.push_back({*std::move(problem), 1, "stored"});
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && problems.size() < kMostProblems);
  return problems;
}

}  // namespace

void RaiseByStored(Context& context, const std::set<std::string>& but, Ceilings* ceilings) {
  const std::vector<ProblemRow> problems = MeasuredProblems(context, but);
  if (problems.empty()) return;
  v1::BatchGetRequest request;
  request.set_environment(context.settings().environment);
  const BatchAnswers answers =
      BatchGetAll(context, request, problems, context.settings().client.timeout);
  for (size_t i = 0; i < std::min(answers.rows.size(), problems.size()); ++i) {
    Raise(problems[i].problem, false, answers.rows[i].result.answer().winner().median_us(),
          ceilings);
  }
}

}  // namespace convtune
