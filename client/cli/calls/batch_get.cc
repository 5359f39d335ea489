#include "client/cli/calls/batch_get.h"

#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::calls {
namespace {

constexpr size_t kMaxProblems = 10'000;
// Below the daemon's 4 MiB, with room for the other fields.
constexpr size_t kMaxRequestBytes = (4 << 20) - (64 << 10);
// The daemon's most; a channel takes more.
constexpr int64_t kMaxAnswerBytes = 64 << 20;
constexpr size_t kBytesPerProblem = 16;  // tags and lengths around the text

}  // namespace

std::vector<std::pair<size_t, size_t>> SplitIntoRequests(const std::vector<ProblemRow>& rows) {
  std::vector<std::pair<size_t, size_t>> ranges;
  size_t first = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t more = rows[i].problem.ToText().size() + kBytesPerProblem;
    if (i - first == kMaxProblems || (i > first && bytes + more > kMaxRequestBytes)) {
      ranges.emplace_back(first, i);
      first = i;
      bytes = 0;
    }
    bytes += more;
  }
  if (first < rows.size()) ranges.emplace_back(first, rows.size());
  return ranges;
}

bool TakeRefused(app::Context& context, const absl::Status& status,
                 std::vector<const ProblemRow*>* rows, std::vector<ProblemRowError>* errors) {
  std::set<size_t> refused;
  for (const auto& [place, words] : client::RefusedProblems(status, rows->size())) {
    refused.insert(place);
    errors->push_back({(*rows)[place]->source, words});
    context.SayError(absl::StrCat(errors->back().source, ": ", words));
  }
  if (refused.empty()) return false;
  std::vector<const ProblemRow*> left;
  for (size_t i = 0; i < rows->size(); ++i) {
    if (refused.count(i) == 0) left.push_back((*rows)[i]);
  }
  *rows = std::move(left);
  return true;
}

BatchAnswers BatchGetAll(app::Context& context, const v1::BatchGetRequest& request,
                         const std::vector<ProblemRow>& rows, absl::Duration timeout) {
  BatchAnswers answers;
  v1::BatchGetRequest base = request;
  base.clear_problems();
  base.set_max_reply_bytes(kMaxAnswerBytes);
  const auto client = context.Connect();
  if (!client.ok()) {
    answers.code = context.Fail(client.status());
    return answers;
  }
  for (const auto& [first, last] : SplitIntoRequests(rows)) {
    std::vector<const ProblemRow*> asked;
    for (size_t i = first; i < last; ++i) asked.push_back(&rows[i]);
    auto response = (*client)->BatchGet(WithProblems(base, asked), timeout);
    if (!response.ok() && TakeRefused(context, response.status(), &asked, &answers.errors)) {
      answers.code = app::Worse(answers.code, app::ExitCode::kUsage);
      if (asked.empty()) continue;
      response = (*client)->BatchGet(WithProblems(base, asked), timeout);
    }
    if (!response.ok()) {
      answers.code = app::Worse(answers.code, context.Fail(response.status()));
      return answers;
    }
    if (response->results_size() != static_cast<int>(asked.size())) {
      context.SayError(absl::StrCat("the daemon answered ", response->results_size(), " of ",
                                    asked.size(), " problems"));
      answers.code = app::Worse(answers.code, app::ExitCode::kFailed);
      return answers;
    }
    answers.environment = response->environment();
    for (size_t i = 0; i < asked.size(); ++i) {
      AnswerRow row{asked[i]->source, std::move(*response->mutable_results(static_cast<int>(i)))};
      answers.code = app::Worse(answers.code, ExitCodeOf(row.result));
      answers.rows.push_back(std::move(row));
    }
  }
  return answers;
}

app::ExitCode ExitCodeOf(const v1::BatchGetResult& result) {
  if (result.has_answer()) return app::ExitCode::kDone;
  return result.miss().reason() == v1::MISS_REASON_TUNING_FAILED ? app::ExitCode::kFailed
                                                                 : app::ExitCode::kMiss;
}

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
