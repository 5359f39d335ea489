#include "client/cli/commands/lint/lint.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <ostream>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::lint {
namespace {

output::Color SeverityColor(LintSeverity severity) {
  if (severity == LintSeverity::kError) return output::Color::kRed;
  return severity == LintSeverity::kWarning ? output::Color::kYellow : output::Color::kNone;
}

// nullopt if it is no such name.
std::optional<LintSeverity> ParseSeverity(std::string_view name) {
  for (const auto severity :
       {LintSeverity::kNotice, LintSeverity::kWarning, LintSeverity::kError}) {
    if (Name(severity) == name) return severity;
  }
  return std::nullopt;
}

std::string RunsWords(const LintFinding& finding) {
  return absl::StrCat(output::Counted(finding.count, "run"), ", ",
                      output::FormatShare(finding.share), " of the arithmetic");
}

output::Fields ProofFields(const ProofLine& line) {
  return {
      {"form", "", line.form}, {"problem", "", line.problem_text}, {"candidates", "", line.words}};
}

output::Fields FindingFields(const LintFinding& finding) {
  return {{"severity", "", Name(finding.severity)},
          {"finding", "", finding.kind},
          {"problem", "", finding.problem},
          {"runs", "", finding.count},
          {"share", "", finding.share},
          {"message", "", finding.message},
          {"proposal", "", finding.proposal},
          {"row", "", finding.source},
          {"proof", "", output::JsonRows(finding.proof, ProofFields), output::Only::kJson}};
}

// The findings of one kind and severity.
struct KindSum {
  std::string kind;
  LintSeverity severity = LintSeverity::kNotice;
  int64_t convolutions = 0, runs = 0;
  double share = 0;
};

output::Fields KindFields(const KindSum& sum) {
  return {{"", "FINDING", sum.kind},
          {"", "SEVERITY", output::Value(Name(sum.severity)).In(SeverityColor(sum.severity))},
          {"", "CONVOLUTIONS", sum.convolutions},
          {"", "RUNS", sum.runs},
          {"", "ARITHMETIC", output::Value(output::FormatShare(sum.share)).Right()}};
}

// A line for each kind and severity, in the order of the findings.
std::vector<KindSum> KindSums(const std::vector<LintFinding>& findings) {
  std::vector<KindSum> sums;
  for (const LintFinding& finding : findings) {
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const KindSum& one) {
      return one.kind == finding.kind && one.severity == finding.severity;
    });
    if (sum == sums.end()) sum = sums.insert(sums.end(), {finding.kind, finding.severity});
    ++sum->convolutions;
    sum->runs += finding.count;
    sum->share += finding.share;
  }
  return sums;
}

// "FILE:LINE" of a list; a model's problems have no lines that anybody sees.
std::string PlaceProperties(const std::string& source) {
  const size_t colon = source.rfind(':');
  int line = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(source.substr(colon + 1), &line)) return "";
  const std::string file = source.substr(0, colon);
  if (file == "stdin") return "";
  const std::string escaped = absl::StrReplaceAll(
      file, {{"%", "%25"}, {"\r", "%0D"}, {"\n", "%0A"}, {":", "%3A"}, {",", "%2C"}});
  return IsOnnxFile(file) ? absl::StrCat("file=", escaped, ",")
                          : absl::StrCat("file=", escaped, ",line=", line, ",");
}

// "23 convolutions: 0 errors, 1 warning, 2 notices".
std::string CountWords(size_t problems, const std::vector<LintFinding>& findings) {
  std::string text = output::Counted(static_cast<int64_t>(problems), "convolution");
  std::string separator = ": ";
  for (const LintSeverity severity :
       {LintSeverity::kError, LintSeverity::kWarning, LintSeverity::kNotice}) {
    const auto count = std::ranges::count(findings, severity, &LintFinding::severity);
    absl::StrAppend(&text, separator, output::Counted(count, std::string(Name(severity))));
    separator = ", ";
  }
  return text;
}

class LintCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "lint",
                            "what the convolutions of a model could be, by cuDNN's lists; nothing "
                            "is timed",
                            FindingFields({}));
    problems_.RegisterFiles(*app)->required();
    input::AddBytes(*app, "--max-workspace", "workspace above which first choices are reported",
                    [this](int64_t bytes) { input_.max_workspace = bytes; })
        ->default_str("1GiB");
    app->add_flag("--no-tf32", input_.no_tf32, "leave candidates on tensor cores out for f32");
    app->add_option("--ignore", input_.ignored, "kinds of findings to leave out")
        ->type_name("KIND,KIND")
        ->delimiter(',')
        ->check(CLI::IsMember(
            std::set<std::string>(std::begin(kFindingKinds), std::end(kFindingKinds))));
    app->add_option_function<std::string>(
           "--fail-on", [this](const std::string& word) { fail_on_ = ParseSeverity(word); },
           "least severity that ends with exit code 1")
        ->check(CLI::IsMember({"notice", "warning", "error", "never"}))
        ->default_str("error");
    app->add_option("--dtypes", dtypes_, "data types to show side by side")
        ->type_name("T,T")
        ->delimiter(',')
        ->check(CLI::IsMember(InputTypeNames()));
    app->add_option("--batches", batches_, "batch sizes to show side by side, such as 1,8,32")
        ->type_name("N,N")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 30));
    app->add_flag("--github", github_, "print annotations for GitHub Actions");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    if (github_ && context.format() != app::Format::kTable) {
      return absl::InvalidArgumentError("--github: must stand without --json, --csv");
    }
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    const std::vector<ProblemRow> rows = MostWorkFirst(batch.rows);
    if (rows.empty()) return app::Worse(batch.code, app::ExitCode::kUsage);
    const std::vector<std::vector<ProblemRow>> variants = VariantsOf(rows);

    // First everything that is known to be needed, then what its lists lead to.
    std::vector<ProblemRow> first = rows;
    for (const auto& variant : variants) first.insert(first.end(), variant.begin(), variant.end());
    for (ProblemRow& row : ProblemsToList(rows, input_)) first.push_back(std::move(row));
    app::ExitCode code = List(context, first);
    if (code == app::ExitCode::kDone) code = List(context, ProblemsToList(rows, input_));
    if (code != app::ExitCode::kDone) return app::Worse(batch.code, code);

    const std::vector<LintFinding> findings = FindingsOf(rows, input_);
    Print(context, rows.size(), findings, variants);
    const auto observed = std::ranges::count_if(
        rows, [this](const ProblemRow& row) { return IsObserved(row.problem, input_); });
    if (observed > 0) {
      context.Say(
          output::Counted(observed, "convolution was", "convolutions were"),
          " not looked at: all that is stored is what a program settled on; `convtune tune` "
          "or `convtune delete` them first");
    }
    const bool fails = fail_on_ && std::ranges::any_of(findings, [&](const LintFinding& finding) {
                         return finding.severity >= *fail_on_;
                       });
    return app::Worse(batch.code, fails ? app::ExitCode::kFailed : app::ExitCode::kDone);
  }

 private:
  // The model as it is, then in each other of the data types and batch sizes that were
  // asked for; empty if none was.
  std::vector<std::vector<ProblemRow>> VariantsOf(const std::vector<ProblemRow>& rows) const {
    std::vector<std::vector<ProblemRow>> variants;
    if (dtypes_.empty() && batches_.empty()) return variants;
    variants.push_back(rows);
    for (const std::string& dtype : dtypes_.empty() ? std::vector<std::string>{""} : dtypes_) {
      for (const int64_t size : batches_.empty() ? std::vector<int64_t>{0} : batches_) {
        ProblemOverrides overrides;
        if (!dtype.empty()) overrides.data_type = ParseDataType(dtype);
        if (size > 0) overrides.batches = {size};
        std::vector<ProblemRow> variant;
        for (ProblemRow row : rows) {
          const auto problem = calls::Vary(row.problem, overrides);
          if (!problem) continue;
          row.problem = *problem;
          variant.push_back(std::move(row));
        }
        variant = MostWorkFirst(variant);
        if (std::ranges::count(variants, variant) == 0) variants.push_back(std::move(variant));
      }
    }
    return variants;
  }

  // Has the daemon list the problems that are not known, which adds to the input.
  app::ExitCode List(app::Context& context, const std::vector<ProblemRow>& rows) {
    std::vector<ProblemRow> wanted = Distinct(rows);
    std::erase_if(wanted, [this](const ProblemRow& row) {
      return input_.known.count(row.problem.ToText()) > 0;
    });
    if (wanted.empty()) return app::ExitCode::kDone;
    v1::CreateTuningJobRequest request;
    request.mutable_options()->set_list_only(true);
    // A problem that cuDNN has nothing for is a finding like others.
    const calls::TuningRun run = calls::RunTuning(context, request, wanted, {.quiet = true});
    if (run.jobs.empty()) {
      return run.code == app::ExitCode::kDone ? app::ExitCode::kFailed : run.code;
    }
    if (run.cancelled) {
      context.SayError("listing was cancelled");
      return app::ExitCode::kFailed;
    }
    if (run.code == app::ExitCode::kUnreachable) return run.code;
    input_.failures.merge(calls::FailureReasons(run));
    const absl::Status status =
        calls::GetTunings(context, context.settings().environment, wanted, &input_.known);
    return status.ok() ? app::ExitCode::kDone : context.Fail(status);
  }

  void Print(app::Context& context, size_t problems, const std::vector<LintFinding>& findings,
             const std::vector<std::vector<ProblemRow>>& variants) const {
    const std::string environment =
        input_.known.empty() ? "" : input_.known.begin()->second.environment().name();
    std::vector<output::Fields> summaries;
    for (const auto& variant : variants) summaries.push_back(SummaryFields(variant, input_));
    context.PrintJson({{"environment", environment},
                       {"problems", problems},
                       {"findings", output::JsonRows(findings, FindingFields)},
                       {"variants", output::JsonRows(summaries, std::identity())}});
    if (context.format() == app::Format::kCsv) context.PrintRows(findings, FindingFields);
    if (context.format() == app::Format::kTable) {
      context.io().out << (github_ ? LintGithub(findings)
                                   : LintText(findings, summaries, context.table_width(),
                                              context.out_color()));
    }
    context.Say(environment, ": ", CountWords(problems, findings),
                "; nothing was timed: whether a form is faster takes a GPU");
  }

  input::ProblemArgs problems_;
  LintInput input_;
  std::optional<LintSeverity> fail_on_ = LintSeverity::kError;  // nullopt: never
  std::vector<std::string> dtypes_;
  std::vector<int64_t> batches_;
  bool github_ = false;
};

}  // namespace

std::string LintText(const std::vector<LintFinding>& findings,
                     const std::vector<output::Fields>& variants, int width, bool color) {
  std::string text;
  for (const LintFinding& finding : findings) {
    absl::StrAppend(
        &text,
        output::Paint(std::string(Name(finding.severity)), SeverityColor(finding.severity), color),
        " ", finding.kind, ": ", input::ShortProblem(finding.problem), " (", RunsWords(finding),
        ")\n  ", finding.message, "\n");
    for (const ProofLine& line : finding.proof) {
      const bool same = line.problem_text == finding.problem;
      // Forms that are not proposed prove nothing where another one is.
      if (!same && !finding.proposal.empty() && line.problem_text != finding.proposal) continue;
      absl::StrAppend(&text, "  ", line.form, ": ",
                      same ? "" : input::ShortProblem(line.problem_text) + ": ", line.words, "\n");
    }
    if (finding.kind == "matrix-product") {
      absl::StrAppend(&text, "  the same: ", finding.proposal, "\n");
    }
  }
  if (findings.size() > 1) {
    const output::Table kinds = output::TableOf(KindSums(findings), KindFields);
    absl::StrAppend(&text, "\n", kinds.Render(width, color));
  }
  if (!variants.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    output::TableOf(variants, std::identity(), variants[0]).Render(width, color));
  }
  return text;
}

std::string LintGithub(const std::vector<LintFinding>& findings) {
  std::string out;
  for (const LintFinding& finding : findings) {
    std::string text = absl::StrCat(input::ShortProblem(finding.problem), " (", RunsWords(finding),
                                    "): ", finding.message);
    if (!finding.proposal.empty()) absl::StrAppend(&text, "\nIn its place: ", finding.proposal);
    absl::StrAppend(&out, "::", std::string(Name(finding.severity)), " ",
                    PlaceProperties(finding.source), "title=convtune ", finding.kind,
                    "::", absl::StrReplaceAll(text, {{"%", "%25"}, {"\r", "%0D"}, {"\n", "%0A"}}),
                    "\n");
  }
  return out;
}

std::unique_ptr<app::Command> NewLintCommand() { return std::make_unique<LintCommand>(); }

}  // namespace convtune::cli::commands::lint
