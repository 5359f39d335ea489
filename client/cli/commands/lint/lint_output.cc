#include "client/cli/commands/lint/lint_output.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/input/onnx_problems.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"

namespace convtune::cli::commands::lint {
namespace {

output::Color SeverityColor(LintSeverity severity) {
  if (severity == LintSeverity::kError) return output::Color::kRed;
  return severity == LintSeverity::kWarning ? output::Color::kYellow : output::Color::kNone;
}

std::string ShareWord(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

std::string RunsWords(const LintFinding& finding) {
  return absl::StrCat(finding.row.count, finding.row.count == 1 ? " run, " : " runs, ",
                      ShareWord(finding.share), " of the arithmetic");
}

std::string VariantTable(const LintReport& report, int width, bool color) {
  output::Table table({{"BATCH", output::Align::kRight},
                       {"DTYPE"},
                       {"CONVOLUTIONS", output::Align::kRight},
                       {"WITHOUT CANDIDATE", output::Align::kRight},
                       {"ON TENSOR CORES", output::Align::kRight},
                       {"NONDETERMINISTIC", output::Align::kRight},
                       {"COMPILED", output::Align::kRight},
                       {"MOST WORKSPACE", output::Align::kRight}});
  for (const VariantSummary& variant : report.variants) {
    table.Add({variant.batch, variant.dtype, absl::StrCat(variant.problems),
               absl::StrCat(variant.without_candidate), ShareWord(variant.on_tensor_cores),
               absl::StrCat(variant.nondeterministic), absl::StrCat(variant.compiled),
               output::FormatBytes(variant.most_workspace)});
  }
  return table.Render(width, color);
}

// A line for each kind and severity, in the order of the findings.
std::string KindTable(const LintReport& report, int width, bool color) {
  struct Sum {
    const LintFinding* first;
    int64_t convolutions = 0, runs = 0;
    double share = 0;
  };
  std::vector<Sum> sums;
  for (const LintFinding& finding : report.findings) {
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const Sum& one) {
      return one.first->kind == finding.kind && one.first->severity == finding.severity;
    });
    if (sum == sums.end()) sum = sums.insert(sums.end(), {&finding});
    ++sum->convolutions;
    sum->runs += finding.row.count;
    sum->share += finding.share;
  }
  output::Table table({{"FINDING"},
                       {"SEVERITY"},
                       {"CONVOLUTIONS", output::Align::kRight},
                       {"RUNS", output::Align::kRight},
                       {"ARITHMETIC", output::Align::kRight}});
  for (const Sum& sum : sums) {
    table.Add({sum.first->kind,
               {std::string(Name(sum.first->severity)), SeverityColor(sum.first->severity)},
               absl::StrCat(sum.convolutions),
               absl::StrCat(sum.runs),
               ShareWord(sum.share)});
  }
  return table.Render(width, color);
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
  return input::IsOnnxFile(file) ? absl::StrCat("file=", escaped, ",")
                                 : absl::StrCat("file=", escaped, ",line=", line, ",");
}

}  // namespace

std::string LintReport::CountWords() const {
  const auto count_of = [this](LintSeverity severity) {
    return std::count_if(findings.begin(), findings.end(), [severity](const LintFinding& finding) {
      return finding.severity == severity;
    });
  };
  const auto words = [](int64_t count, std::string_view name) {
    return absl::StrCat(count, " ", std::string(name), count == 1 ? "" : "s");
  };
  std::string text = words(problems, "convolution");
  std::string separator = ": ";
  for (const LintSeverity severity :
       {LintSeverity::kError, LintSeverity::kWarning, LintSeverity::kNotice}) {
    absl::StrAppend(&text, separator, words(count_of(severity), Name(severity)));
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
  if (report.findings.size() > 1) absl::StrAppend(&text, "\n", KindTable(report, width, color));
  if (!report.variants.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", VariantTable(report, width, color));
  }
  return text;
}

std::string LintJson(const LintReport& report) {
  std::vector<std::string> findings, variants;
  for (const LintFinding& finding : report.findings) {
    std::vector<std::string> proof;
    for (const ProofLine& line : finding.proof) {
      proof.push_back(output::JsonObject()
                          .Add("form", line.form)
                          .Add("problem", line.problem_text)
                          .Add("candidates", line.words)
                          .Take());
    }
    findings.push_back(output::JsonObject()
                           .Add("finding", finding.kind)
                           .Add("severity", Name(finding.severity))
                           .Add("row", finding.row.source)
                           .Add("problem", finding.row.problem.ToText())
                           .Add("runs", finding.row.count)
                           .Add("share", finding.share)
                           .Add("message", finding.message)
                           .Add("proposal", finding.proposal)
                           .AddRaw("proof", output::JsonArray(proof))
                           .Take());
  }
  for (const VariantSummary& variant : report.variants) {
    variants.push_back(output::JsonObject()
                           .Add("batch", variant.batch)
                           .Add("dtype", variant.dtype)
                           .Add("problems", variant.problems)
                           .Add("withoutCandidate", variant.without_candidate)
                           .Add("onTensorCores", variant.on_tensor_cores)
                           .Add("nondeterministic", variant.nondeterministic)
                           .Add("compiled", variant.compiled)
                           .Add("mostWorkspaceBytes", variant.most_workspace)
                           .Take());
  }
  return output::JsonObject()
      .Add("environment", report.environment)
      .Add("problems", report.problems)
      .AddRaw("findings", output::JsonArray(findings))
      .AddRaw("variants", output::JsonArray(variants))
      .Take();
}

std::string LintCsv(const LintReport& report) {
  std::string out = output::CsvLine(
      {"severity", "finding", "problem", "runs", "share", "message", "proposal", "row"});
  for (const LintFinding& finding : report.findings) {
    out += output::CsvLine({std::string(Name(finding.severity)), finding.kind,
                            finding.row.problem.ToText(), absl::StrCat(finding.row.count),
                            absl::StrFormat("%.6g", finding.share), finding.message,
                            finding.proposal, finding.row.source});
  }
  return out;
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
