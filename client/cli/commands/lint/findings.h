// A LintFinding is a convolution of a model that could be another one, or of which
// cuDNN's list of candidates promises trouble, with the proof.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/calls/variants.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::lint {

enum class LintSeverity { kNotice = 0, kWarning = 1, kError = 2 };
// "notice", "warning", "error".
std::string_view Name(LintSeverity severity);
// nullopt if it is no such name.
std::optional<LintSeverity> ParseSeverity(std::string_view name);

// The names of the kinds of findings.
inline constexpr const char* kFindingKinds[] = {"no-candidate", "last-resort",   "tensor-cores",
                                                "layout",       "workspace",     "nondeterministic",
                                                "compiled",     "matrix-product"};

// One line of a proof: what cuDNN lists for a problem.
struct ProofLine {
  std::string form;  // "as it is", "in nhwc", "with 3 input channels padded to 8"
  std::string problem_text;
  std::string words;  // of its candidates
};

// Value type.
struct LintFinding {
  std::string kind;  // of kFindingKinds
  LintSeverity severity = LintSeverity::kNotice;
  ProblemRow row;    // the convolution, and how often the model runs it
  double share = 0;  // of the model's arithmetic, from 0 to 1
  std::string message;
  std::vector<ProofLine> proof;
  // A proposed replacement: a problem, or code. Empty: there is none.
  std::string proposal;
};

struct LintOptions {
  int64_t max_workspace = int64_t{1} << 30;
  bool no_tf32 = false;
  std::vector<std::string> ignored;  // kinds
};

// Problems whose lists FindingsOf needs besides those of `rows` themselves: other
// layouts, and, of those that `known` has no candidate on tensor cores for that does
// without copies, the forms that may have some. Each once. To be asked for twice:
// what the first lists say decides about the forms.
std::vector<ProblemRow> ProblemsToList(const std::vector<ProblemRow>& rows,
                                       const calls::TuningMap& known, const LintOptions& options);

// The errors of problems without a list, by the problem's text.
using ListFailures = std::map<std::string, std::string>;

// The findings of distinct problems; the worst first, between equals those with
// the most arithmetic. Of problems that `known` lacks `failures` may say why.
std::vector<LintFinding> FindingsOf(const std::vector<ProblemRow>& rows,
                                    const calls::TuningMap& known, const ListFailures& failures,
                                    const LintOptions& options);

// A model in one data type and batch size, beside others. Value type.
struct VariantSummary {
  std::string batch;  // "-" where its convolutions differ in it
  std::string dtype;
  int problems = 0;
  int without_candidate = 0;
  double on_tensor_cores = 0;  // share of the arithmetic whose first choice runs there
  int nondeterministic = 0;    // convolutions whose candidates all are
  int compiled = 0;            // whose first choice is compiled at run time
  int64_t most_workspace = 0;  // of the first choices, in bytes
};
VariantSummary Summarize(const std::vector<ProblemRow>& rows, const calls::TuningMap& known,
                         const LintOptions& options);

}  // namespace convtune::cli::commands::lint
