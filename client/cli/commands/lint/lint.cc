#include <CLI/CLI.hpp>
#include <ostream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/calls/variants.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/lint/findings.h"
#include "client/cli/commands/lint/lint_output.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::lint {
namespace {

class LintCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "lint",
                            "what the convolutions of a model could be, by cuDNN's lists; nothing "
                            "is timed",
                            app::Rows::kYes);
    problems_.RegisterFiles(*app);
    app->add_option("--max-workspace", max_workspace_,
                    "workspace above which first choices are reported")
        ->type_name("SIZE")
        ->capture_default_str();
    app->add_flag("--no-tf32", options_.no_tf32, "leave candidates on tensor cores out for f32");
    app->add_option("--ignore", options_.ignored, "kinds of findings to leave out")
        ->type_name("KIND,KIND")
        ->delimiter(',')
        ->check(CLI::IsMember(
            std::set<std::string>(std::begin(kFindingKinds), std::end(kFindingKinds))));
    app->add_option("--fail-on", fail_on_, "least severity that ends with exit code 1")
        ->check(CLI::IsMember({"notice", "warning", "error", "never"}))
        ->capture_default_str();
    app->add_option("--dtypes", dtypes_, "data types to show side by side")
        ->type_name("T,T")
        ->delimiter(',')
        ->check(CLI::IsMember(InputTypeNames()));
    app->add_option("--batches", batches_, "batch sizes to show side by side, such as 1,8,32")
        ->type_name("N,N")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 30));
    app->add_flag("--github", github_, "print annotations for GitHub Actions");
    app::SayColumns(app, FindingFields(AnyFinding()));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    if (github_ && context.format() != app::Format::kTable) {
      return absl::InvalidArgumentError("--github: must stand without --json, --csv");
    }
    ASSIGN_OR_RETURN(options_.max_workspace, output::ParseBytes("--max-workspace", max_workspace_));
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    const std::vector<ProblemRow> rows = MostWorkFirst(batch.rows);
    if (rows.empty()) return app::Worse(batch.code, app::ExitCode::kUsage);
    const std::vector<std::vector<ProblemRow>> variants = VariantsOf(rows);

    // First everything that is known to be needed, then what its lists lead to.
    std::vector<ProblemRow> first = rows;
    for (const auto& variant : variants) first.insert(first.end(), variant.begin(), variant.end());
    for (ProblemRow& row : ProblemsToList(rows, {}, options_)) first.push_back(std::move(row));
    calls::TuningMap known;
    ListFailures failures;
    app::ExitCode code = List(context, first, &known, &failures);
    if (code == app::ExitCode::kDone) {
      code = List(context, ProblemsToList(rows, known, options_), &known, &failures);
    }
    if (code != app::ExitCode::kDone) return app::Worse(batch.code, code);

    LintReport report;
    report.environment = known.empty() ? "" : known.begin()->second.environment().name();
    report.problems = static_cast<int>(rows.size());
    report.findings = FindingsOf(rows, known, failures, options_);
    for (const auto& variant : variants) {
      report.variants.push_back(Summarize(variant, known, options_));
    }
    Print(context, report);
    return app::Worse(batch.code, Fails(report) ? app::ExitCode::kFailed : app::ExitCode::kDone);
  }

 private:
  // The model as it is, then in each other of the data types and batch sizes that were
  // asked for; empty if none was.
  std::vector<std::vector<ProblemRow>> VariantsOf(const std::vector<ProblemRow>& rows) const {
    std::vector<std::vector<ProblemRow>> variants;
    if (dtypes_.empty() && batches_.empty()) return variants;
    variants.push_back(rows);
    std::vector<ProblemOverrides> all;
    for (const std::string& dtype : dtypes_.empty() ? std::vector<std::string>{""} : dtypes_) {
      for (const int64_t size : batches_.empty() ? std::vector<int64_t>{0} : batches_) {
        ProblemOverrides overrides;
        if (!dtype.empty()) overrides.data_type = ParseDataType(dtype);
        if (size > 0) overrides.batches = {size};
        all.push_back(overrides);
      }
    }
    for (const ProblemOverrides& overrides : all) {
      std::vector<ProblemRow> variant;
      for (const ProblemRow& row : rows) {
        const auto problem = calls::Vary(row.problem, overrides);
        if (problem) variant.push_back({*problem, row.count, row.source});
      }
      variant = MostWorkFirst(variant);
      const bool is_new =
          std::none_of(variants.begin(), variants.end(), [&](const std::vector<ProblemRow>& other) {
            return std::equal(variant.begin(), variant.end(), other.begin(), other.end(),
                              [](const ProblemRow& a, const ProblemRow& b) {
                                return a.problem == b.problem && a.count == b.count;
                              });
          });
      if (is_new) variants.push_back(std::move(variant));
    }
    return variants;
  }

  // Has the daemon list the problems that it does not know. Adds the lists to `known`,
  // and the reasons of problems that could not be listed to `failures`.
  static app::ExitCode List(app::Context& context, const std::vector<ProblemRow>& rows,
                            calls::TuningMap* known, ListFailures* failures) {
    std::vector<ProblemRow> distinct;
    std::set<std::string> seen;
    for (const ProblemRow& row : rows) {
      const std::string text = row.problem.ToText();
      if (known->count(text) == 0 && seen.insert(text).second) distinct.push_back(row);
    }
    if (distinct.empty()) return app::ExitCode::kDone;
    v1::CreateTuningJobRequest request;
    request.set_environment(context.settings().environment);
    request.set_priority(v1::PRIORITY_INTERACTIVE);
    request.mutable_options()->set_list_only(true);
    // A problem that cuDNN has nothing for is a finding like others.
    const calls::TuningRun run = calls::RunTuning(context, request, distinct, {.quiet = true});
    if (run.jobs.empty()) {
      return run.code == app::ExitCode::kDone ? app::ExitCode::kFailed : run.code;
    }
    if (run.cancelled) {
      context.SayError("listing was cancelled");
      return app::ExitCode::kFailed;
    }
    if (run.code == app::ExitCode::kUnreachable) return run.code;
    failures->merge(calls::FailureReasons(run));
    const absl::Status status =
        calls::GetTunings(context, context.settings().environment, distinct, known);
    return status.ok() ? app::ExitCode::kDone : context.Fail(status);
  }

  bool Fails(const LintReport& report) const {
    const auto least = ParseSeverity(fail_on_);
    return least && std::any_of(report.findings.begin(), report.findings.end(),
                                [&](const LintFinding& f) { return f.severity >= *least; });
  }

  void Print(app::Context& context, const LintReport& report) const {
    if (github_) {
      context.io().out << LintGithub(report);
    } else {
      PrintLint(context, report);
    }
    context.Say(absl::StrCat(report.environment, ": ", report.CountWords(),
                             "; nothing was timed: whether a form is faster takes a GPU"));
  }

  input::ProblemArgs problems_;
  LintOptions options_;
  std::string max_workspace_ = "1GiB";
  std::string fail_on_ = "error";
  std::vector<std::string> dtypes_;
  std::vector<int64_t> batches_;
  bool github_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewLintCommand() { return std::make_unique<LintCommand>(); }

}  // namespace convtune::cli::commands::lint
