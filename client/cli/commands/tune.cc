#include <CLI/CLI.hpp>
#include <optional>
#include <vector>

#include "client/cli/calls/answer_output.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/budget_args.h"
#include "client/cli/input/constraint_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class TuneCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "tune", "search the best algorithm of each problem, and keep it",
                            app::Rows::kYes);
    problems_.Register(*app);
    constraints_.Register(*app);
    budget_.Register(*app);
    app->add_option("--max-candidates", max_candidates_, "most candidates to try; 0: no limit")
        ->type_name("N");
    app->add_option("--search", search_,
                    "candidates to try: those that heuristics list, or every engine")
        ->check(CLI::IsMember({"heuristics", "exhaustive"}))
        ->capture_default_str();
    app->add_flag("--all-timings", all_timings_,
                  "time finalists with every cache state, launched and as CUDA graph replays");
    app->add_flag("--force", force_, "tune also what has been tuned already");
    app::SayColumns(app, calls::AnswerFields({}, {}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto constraints, constraints_.ToProto());
    v1::CreateTuningJobRequest request;
    RETURN_IF_ERROR(FillOptions(request.mutable_options()));
    // What the caller cannot use is not searched either.
    request.mutable_options()->set_api(constraints.api());
    request.set_environment(context.settings().environment);
    request.set_force(force_);
    request.set_priority(v1::PRIORITY_INTERACTIVE);
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));

    calls::TuningRun run;
    if (!batch.rows.empty()) run = calls::RunTuning(context, request, batch.rows);
    calls::BatchAnswers answers;
    if (!run.jobs.empty() && !run.cancelled && run.code != app::ExitCode::kUnreachable) {
      v1::BatchGetRequest get;
      get.set_environment(context.settings().environment);
      *get.mutable_constraints() = constraints;
      answers = calls::BatchGetAll(context, get, batch.rows, context.settings().client.timeout);
    }
    std::vector<ProblemRowError> invalid = batch.errors;
    invalid.insert(invalid.end(), run.errors.begin(), run.errors.end());
    calls::PrintAnswers(context, answers, invalid, &run.jobs);
    return app::Worse(batch.code, app::Worse(run.code, answers.code));
  }

 private:
  absl::Status FillOptions(v1::TuningOptions* options) const {
    RETURN_IF_ERROR(budget_.Fill(options));
    if (max_candidates_) {
      ASSIGN_OR_RETURN(const int64_t count,
                       output::ParseCount("--max-candidates", *max_candidates_, 0, 100'000));
      options->set_max_candidates(static_cast<int32_t>(count));
    }
    options->set_all_timings(all_timings_);
    options->set_search(search_ == "exhaustive" ? v1::SEARCH_EXHAUSTIVE : v1::SEARCH_HEURISTICS);
    return absl::OkStatus();
  }

  input::ProblemArgs problems_;
  input::ConstraintArgs constraints_;
  input::BudgetArgs budget_;
  std::optional<std::string> max_candidates_;
  std::string search_ = "heuristics";
  bool all_timings_ = false;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewTuneCommand() { return std::make_unique<TuneCommand>(); }

}  // namespace convtune::cli::commands
