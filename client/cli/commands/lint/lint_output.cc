#include "client/cli/commands/lint/lint_output.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"

namespace convtune::cli::commands::lint {
namespace {

output::Color SeverityColor(LintSeverity severity) {
  if (severity == LintSeverity::kError) return output::Color::kRed;
  return severity == LintSeverity::kWarning ? output::Color::kYellow : output::Color::kNone;
}

std::string ShareWord(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

output::Value ShareValue(double share) { return output::Value(share).Shown(ShareWord(share)); }

std::string RunsWords(const LintFinding& finding) {
  return absl::StrCat(finding.row.count, finding.row.count == 1 ? " run, " : " runs, ",
                      ShareWord(finding.share), " of the arithmetic");
}

output::Fields VariantFields(const VariantSummary& variant) {
  return {{"batch", "BATCH", output::Value(variant.batch).Right()},
          {"dtype", "DTYPE", variant.dtype},
          {"problems", "CONVOLUTIONS", variant.problems},
          {"withoutCandidate", "WITHOUT CANDIDATE", variant.without_candidate},
          {"onTensorCores", "ON TENSOR CORES", ShareValue(variant.on_tensor_cores)},
          {"nondeterministic", "NONDETERMINISTIC", variant.nondeterministic},
          {"compiled", "COMPILED", variant.compiled},
          {"mostWorkspaceBytes", "MOST WORKSPACE", output::Bytes(variant.most_workspace)}};
}

output::Fields ProofFields(const ProofLine& line) {
  return {
      {"form", "", line.form}, {"problem", "", line.problem_text}, {"candidates", "", line.words}};
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
          {"", "ARITHMETIC", ShareValue(sum.share)}};
}

// A line for each kind and severity, in the order of the findings.
std::vector<KindSum> KindSums(const LintReport& report) {
  std::vector<KindSum> sums;
  for (const LintFinding& finding : report.findings) {
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const KindSum& one) {
      return one.kind == finding.kind && one.severity == finding.severity;
    });
    if (sum == sums.end()) sum = sums.insert(sums.end(), {finding.kind, finding.severity});
    ++sum->convolutions;
    sum->runs += finding.row.count;
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

}  // namespace

output::Fields FindingFields(const LintFinding& finding) {
  return {{"severity", "", Name(finding.severity)},
          {"finding", "", finding.kind},
          {"problem", "", finding.row.problem.ToText()},
          {"runs", "", finding.row.count},
          {"share", "", finding.share},
          {"message", "", finding.message},
          {"proposal", "", finding.proposal},
          {"row", "", finding.row.source},
          {"proof", "", output::JsonRows(finding.proof, ProofFields), output::Only::kJson}};
}

LintFinding AnyFinding() {
  const ProblemRow row{*ConvProblem::Parse("fwd,x=1x1x1x1,w=1x1x1x1,f32"), 1, "", ""};
  return {"", LintSeverity::kNotice, row, 0, "", {}, ""};
}

std::string LintReport::CountWords() const {
  const auto count_of = [this](LintSeverity severity) {
    return std::count_if(findings.begin(), findings.end(), [severity](const LintFinding& finding) {
      return finding.severity == severity;
    });
  };
  std::string text = output::Counted(problems, "convolution");
  std::string separator = ": ";
  for (const LintSeverity severity :
       {LintSeverity::kError, LintSeverity::kWarning, LintSeverity::kNotice}) {
    absl::StrAppend(&text, separator,
                    output::Counted(count_of(severity), std::string(Name(severity))));
    separator = ", ";
  }
  return text;
}

std::string LintText(const LintReport& report, int width, bool color) {
  std::string text;
  for (const LintFinding& finding : report.findings) {
    absl::StrAppend(
        &text,
        output::Paint(std::string(Name(finding.severity)), SeverityColor(finding.severity), color),
        " ", finding.kind, ": ", input::ShortProblem(finding.row.problem.ToText()), " (",
        RunsWords(finding), ")\n  ", finding.message, "\n");
    for (const ProofLine& line : finding.proof) {
      const bool same = line.problem_text == finding.row.problem.ToText();
      // Forms that are not proposed prove nothing where another one is.
      if (!same && !finding.proposal.empty() && line.problem_text != finding.proposal) continue;
      absl::StrAppend(&text, "  ", line.form, ": ",
                      same ? "" : input::ShortProblem(line.problem_text) + ": ", line.words, "\n");
    }
    if (finding.kind == "matrix-product") {
      absl::StrAppend(&text, "  the same: ", finding.proposal, "\n");
    }
  }
  if (report.findings.size() > 1) {
    const output::Table kinds = output::TableOf(KindSums(report), KindFields);
    absl::StrAppend(&text, "\n", kinds.Render(width, color));
  }
  if (!report.variants.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    output::TableOf(report.variants, VariantFields).Render(width, color));
  }
  return text;
}

void PrintLint(app::Context& context, const LintReport& report) {
  context.PrintJson({{"environment", report.environment},
                     {"problems", report.problems},
                     {"findings", output::JsonRows(report.findings, FindingFields)},
                     {"variants", output::JsonRows(report.variants, VariantFields)}});
  if (context.format() == app::Format::kCsv) {
    context.PrintRows(report.findings, FindingFields, AnyFinding());
  }
  if (context.format() != app::Format::kTable) return;
  context.io().out << LintText(report, context.table_width(), context.out_color());
}

std::string LintGithub(const LintReport& report) {
  std::string out;
  for (const LintFinding& finding : report.findings) {
    std::string text = absl::StrCat(input::ShortProblem(finding.row.problem.ToText()), " (",
                                    RunsWords(finding), "): ", finding.message);
    if (!finding.proposal.empty()) absl::StrAppend(&text, "\nIn its place: ", finding.proposal);
    absl::StrAppend(&out, "::", std::string(Name(finding.severity)), " ",
                    PlaceProperties(finding.row.source), "title=convtune ", finding.kind,
                    "::", absl::StrReplaceAll(text, {{"%", "%25"}, {"\r", "%0D"}, {"\n", "%0A"}}),
                    "\n");
  }
  return out;
}

}  // namespace convtune::cli::commands::lint
