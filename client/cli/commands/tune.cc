#include <CLI/CLI.hpp>
#include <optional>
#include <vector>

#include "client/cli/answer_output.h"
#include "client/cli/batch_get.h"
#include "client/cli/command.h"
#include "client/cli/constraint_args.h"
#include "client/cli/json.h"
#include "client/cli/problem_args.h"
#include "client/cli/tuning_run.h"
#include "client/cli/units.h"
#include "proto/base/status_macros.h"

namespace convtune {
namespace {

google::protobuf::Duration ToDuration(absl::Duration duration) {
  google::protobuf::Duration out;
  out.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return out;
}

class TuneCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "tune", "search the best algorithm of each problem, and keep it", Rows::kYes);
    problems_.Register(*app);
    constraints_.Register(*app);
    app->add_option("--budget", budget_, "time for one problem, such as 2s")->type_name("TIME");
    app->add_option("--memory-budget", memory_budget_, "GPU memory to use, such as 2GiB; 0: all")
        ->type_name("SIZE");
    app->add_option("--max-candidates", max_candidates_, "most candidates to try; 0: no limit")
        ->type_name("N");
    app->add_option("--search", search_, "how far to look")
        ->check(CLI::IsMember({"heuristics", "exhaustive"}))
        ->capture_default_str();
    app->add_option("--wait-idle", wait_idle_,
                    "longest wait for a GPU that no other process uses, such as 5m")
        ->type_name("TIME");
    app->add_flag("--force", force_, "also what has been tuned already");
  }

  ExitCode Run(Context& context) override {
    const auto constraints = constraints_.ToProto();
    if (!constraints.ok()) return context.Fail(constraints.status());
    v1::CreateTuningJobRequest request;
    if (const absl::Status status = FillOptions(request.mutable_options()); !status.ok()) {
      return context.Fail(status);
    }
    // What the caller cannot use is not searched either.
    request.mutable_options()->set_api(constraints->api());
    request.set_environment(context.settings().environment);
    request.set_force(force_);
    request.set_priority(v1::PRIORITY_INTERACTIVE);
    const auto batch = problems_.Read(context);
    if (!batch.ok()) return context.Fail(batch.status());

    TuningRun run;
    if (!batch->rows.empty()) run = RunTuning(context, request, batch->rows);
    BatchAnswers answers;
    if (!run.jobs.empty() && !run.cancelled && run.code != ExitCode::kUnreachable) {
      v1::BatchGetRequest get;
      get.set_environment(context.settings().environment);
      *get.mutable_constraints() = *constraints;
      answers = BatchGetAll(context, get, batch->rows, context.settings().client.timeout);
    }
    std::vector<ProblemRowError> invalid = batch->errors;
    invalid.insert(invalid.end(), run.errors.begin(), run.errors.end());
    PrintAnswers(context, answers, invalid, JsonMessages(run.jobs));
    return Worse(batch->code, Worse(run.code, answers.code));
  }

 private:
  absl::Status FillOptions(v1::TuningOptions* options) const {
    if (budget_) {
      RETURN_IF_ERROR(SetTimeBudget(*budget_, options));
    }
    if (wait_idle_) {
      ASSIGN_OR_RETURN(const absl::Duration wait, ParseTime("--wait-idle", *wait_idle_));
      if (wait > absl::Hours(1)) {
        return absl::InvalidArgumentError("--wait-idle: must be at most 1h, is '" + *wait_idle_ +
                                          "'");
      }
      *options->mutable_wait_idle() = ToDuration(wait);
    }
    if (memory_budget_) {
      ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes("--memory-budget", *memory_budget_));
      if (bytes > int64_t{1} << 50) {
        return absl::InvalidArgumentError("--memory-budget: must be at most 2^50 bytes, is '" +
                                          *memory_budget_ + "'");
      }
      options->set_memory_budget_bytes(bytes);
    }
    if (max_candidates_) {
      ASSIGN_OR_RETURN(const int64_t count,
                       ParseCount("--max-candidates", *max_candidates_, 0, 100'000));
      options->set_max_candidates(static_cast<int32_t>(count));
    }
    options->set_search(search_ == "exhaustive" ? v1::SEARCH_EXHAUSTIVE : v1::SEARCH_HEURISTICS);
    return absl::OkStatus();
  }

  ProblemArgs problems_;
  ConstraintArgs constraints_;
  std::optional<std::string> budget_, memory_budget_, max_candidates_, wait_idle_;
  std::string search_ = "heuristics";
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> NewTuneCommand() { return std::make_unique<TuneCommand>(); }

}  // namespace convtune
