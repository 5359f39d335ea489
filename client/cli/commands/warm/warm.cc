#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/app/command.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/warm/warm_summary.h"
#include "client/cli/input/budget_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_order.h"

namespace convtune::cli {
namespace {

constexpr absl::Duration kReadyPoll = absl::Milliseconds(200);
// Rows whose search times are asked for: about a second of calls.
constexpr size_t kMostSearchTimes = 1000;

class WarmCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "warm", "tune what is missing of a model, most work first", Rows::kNo);
    problems_.RegisterFiles(*app);
    budget_.Register(*app);
    app->add_option("--min-evidence", min_evidence_, "least evidence that counts as warm")
        ->check(CLI::IsMember({"heuristic", "observed", "incomplete", "measured"}));
    app->add_option("--wait-ready", wait_ready_, "wait for the daemon, at most this long")
        ->type_name("TIME");
  }

  ExitCode Run(Context& context) override {
    v1::CreateTuningJobRequest request;
    if (const absl::Status status = FillRequest(context, &request); !status.ok()) {
      return context.Fail(status);
    }
    const auto batch = problems_.Read(context);
    if (!batch.ok()) return context.Fail(batch.status());
    const std::vector<ProblemRow> rows = MostWorkFirst(batch->rows);
    if (rows.empty()) return Worse(batch->code, ExitCode::kUsage);
    if (const absl::Status status = WaitReady(context); !status.ok()) return context.Fail(status);

    const BatchAnswers before = Ask(context, rows);
    if (before.rows.size() + before.errors.size() < rows.size()) {
      return Worse(batch->code, before.code);
    }
    const std::vector<ProblemRow> missing = Missing(rows, before);
    WarmSummary summary;
    summary.environment = before.environment.name();
    summary.problems = static_cast<int64_t>(rows.size());
    summary.hits = static_cast<int64_t>(rows.size() - missing.size());
    TuningRun run;
    if (!missing.empty()) {
      context.Say(absl::StrCat(summary.hits, " of ", rows.size(), " problems have an answer; ",
                               missing.size(), " are tuned, most work first"));
      run = RunTuning(context, request, missing);
      if (run.code == ExitCode::kUnreachable) return run.code;
      Count(Ask(context, missing), run, &summary);
    }
    AddSearchTime(context, rows, &summary);
    if (context.format() == Format::kJson) context.io().out << summary.ToJson() << "\n";
    context.Say(summary.ToText());
    context.Say(summary.warm() ? "the model is warm" : "the model is not warm");
    return Worse(Worse(batch->code, run.code),
                 summary.warm() ? ExitCode::kDone : ExitCode::kFailed);
  }

 private:
  absl::Status FillRequest(Context& context, v1::CreateTuningJobRequest* request) const {
    request->set_environment(context.settings().environment);
    request->set_priority(v1::PRIORITY_INTERACTIVE);
    return budget_.Fill(request->mutable_options());
  }

  absl::Status WaitReady(Context& context) const {
    if (!wait_ready_) return absl::OkStatus();
    ASSIGN_OR_RETURN(const absl::Duration limit, ParseTime("--wait-ready", *wait_ready_));
    ASSIGN_OR_RETURN(Client* const client, context.Connect());
    const absl::Time end = absl::Now() + limit;
    while (true) {
      const auto ready = client->IsServing("readiness");
      if (ready.ok() && *ready) return absl::OkStatus();
      if (!ready.ok() && !absl::IsUnavailable(ready.status())) return ready.status();
      if (absl::Now() >= end) {
        return absl::UnavailableError(
            absl::StrCat("not ready within ", *wait_ready_,
                         ready.ok() ? "" : ": " + std::string(ready.status().message())));
      }
      client->Pause(std::min(kReadyPoll, end - absl::Now()));
    }
  }

  static BatchAnswers Ask(Context& context, const std::vector<ProblemRow>& rows) {
    v1::BatchGetRequest get;
    get.set_environment(context.settings().environment);
    return BatchGetAll(context, get, rows, context.settings().client.timeout);
  }

  bool Warm(const BatchAnswers& answers, const v1::BatchGetResult& result) const {
    v1::Evidence least = v1::EVIDENCE_UNSPECIFIED;
    if (const auto named = ParseEvidence(min_evidence_)) least = static_cast<v1::Evidence>(*named);
    return IsWarm(result, least, answers.environment.profile());
  }

  // Those that have no answer that is good enough, and were not refused.
  std::vector<ProblemRow> Missing(const std::vector<ProblemRow>& rows,
                                  const BatchAnswers& answers) const {
    std::set<std::string> cold;
    for (const AnswerRow& row : answers.rows) {
      if (!Warm(answers, row.result)) cold.insert(row.result.problem_text());
    }
    std::vector<ProblemRow> missing;
    for (const ProblemRow& row : rows) {
      if (cold.count(row.problem.ToText()) > 0) missing.push_back(row);
    }
    return missing;
  }

  void Count(const BatchAnswers& after, const TuningRun& run, WarmSummary* summary) const {
    // "problem: reason" of the first failures.
    std::map<std::string, std::string> reasons;
    for (const v1::TuningJob& job : run.jobs) {
      for (const std::string& failure : job.failures()) {
        const size_t colon = failure.find(": ");
        if (colon == std::string::npos) continue;
        reasons[failure.substr(0, colon)] = failure.substr(colon + 2);
      }
    }
    for (const AnswerRow& row : after.rows) {
      const std::string& problem = row.result.problem_text();
      if (Warm(after, row.result)) {
        ++summary->tuned;
        continue;
      }
      const auto known = reasons.find(problem);
      WarmSummary::Failure& failure =
          summary->failures[known != reasons.end() ? known->second : ColdReason(row.result)];
      if (failure.count++ == 0) failure.example = ShortProblem(problem);
    }
  }

  // Sums what is recorded with the tunings of `rows`, of which each is asked
  // for by itself: whatever else the database holds does not matter.
  static void AddSearchTime(Context& context, const std::vector<ProblemRow>& rows,
                            WarmSummary* summary) {
    const auto client = context.Connect();
    if (!client.ok()) return;
    const size_t count = std::min(rows.size(), kMostSearchTimes);
    ProgressBar bar(context.io());
    Progress progress;
    progress.total = static_cast<int>(count);
    for (size_t i = 0; i < count; ++i) {
      progress.done = static_cast<int>(i);
      bar.Show(progress);
      v1::GetTuningRequest request;
      request.set_environment(summary->environment);
      request.mutable_problem()->set_text(rows[i].problem.ToText());
      const auto tuning = (*client)->GetTuning(request);
      if (!tuning.ok() && !absl::IsNotFound(tuning.status())) return;
      if (!tuning.ok()) continue;
      summary->search_time +=
          absl::Seconds(tuning->elapsed().seconds()) + absl::Nanoseconds(tuning->elapsed().nanos());
      ++summary->search_time_of;
    }
  }

  ProblemArgs problems_;
  BudgetArgs budget_;
  std::optional<std::string> wait_ready_;
  std::string min_evidence_;
};

}  // namespace

std::unique_ptr<Command> NewWarmCommand() { return std::make_unique<WarmCommand>(); }

}  // namespace convtune::cli
