// A LintFinding is a convolution of a model that could be another one, or of which
// cuDNN's list of candidates promises trouble, with the proof. A Form is another way to
// write a convolution, with the same result.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/app/program.h"
#include "client/cli/calls/answers.h"
#include "client/cli/output/fields.h"
#include "proto/convert/problem_list.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::commands::lint {

app::NewVerb NewLintCommand;

enum class LintSeverity { kNotice = 0, kWarning = 1, kError = 2 };
// "notice", "warning", "error".
std::string_view Name(LintSeverity severity);

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
  std::string problem;  // text form of the convolution
  int64_t count = 1;    // how often the model runs it
  std::string source;   // as ProblemRow has it
  double share = 0;     // of the model's arithmetic, from 0 to 1
  std::string message;
  std::vector<ProofLine> proof;
  // A problem, or code, that is proposed in place of the convolution. Empty: nothing is proposed.
  std::string proposal;
};

// What cuDNN lists, and which findings are wanted. Value type.
struct LintInput {
  calls::TuningMap known;                       // lists, by the problem's text
  std::map<std::string, std::string> failures;  // why problems have no list, by their text
  int64_t max_workspace = int64_t{1} << 30;
  bool no_tf32 = false;
  std::vector<std::string> ignored;  // kinds
};

// Problems whose lists FindingsOf needs besides those of `rows`: each row's other layout, and the
// TensorCoreForms of a row whose list has nothing on tensor cores without copies of x or y. Each
// once, and none that `input` has already. To be called again once the first problems are listed:
// their lists decide which forms are wanted.
std::vector<ProblemRow> ProblemsToList(const std::vector<ProblemRow>& rows, const LintInput& input);

// True if all that is stored of the problem is the one candidate that a program settled on, which
// is no list.
bool IsObserved(const ConvProblem& problem, const LintInput& input);

// The findings of distinct problems, but for what IsObserved; the worst first, between equals those
// with the most arithmetic.
std::vector<LintFinding> FindingsOf(const std::vector<ProblemRow>& rows, const LintInput& input);

// The columns of a model in one data type and batch size, beside others: what its first choices
// are, and the convolutions without a candidate.
output::Fields SummaryFields(const std::vector<ProblemRow>& rows, const LintInput& input);

// Value type.
struct Form {
  std::string how;      // "with 3 input channels padded to 8"
  ConvProblem problem;  // in that form
  double work = 1;      // its arithmetic as a multiple of the convolution's
};

// NCHW for NHWC and the other way round; nullopt for strides of its own.
std::optional<ConvProblem> OtherLayout(const ConvProblem& problem);

// Forms that may have candidates on tensor cores, the one with the least
// arithmetic first: groups merged until a group's channels are a multiple of 8
// (16 for 8-bit types), with zeros in the filter where groups met; channels
// padded with zeros to such a multiple; f16 for f32; each of these in NHWC too if
// it is NCHW; the other layout. None has more than 8 times the arithmetic. Empty if it
// is f64, or has strides of its own.
std::vector<Form> TensorCoreForms(const ConvProblem& problem);

// A convolution that is one matrix product. Value type.
struct MatrixProduct {
  std::string why;  // "its kernel is as large as its stride"
  int64_t m = 0, n = 0, k = 0;
  std::string linear;  // the same in PyTorch; x, w and b are the convolution's
};

// Of a convolution without groups and padding whose windows do not overlap and
// are more than a pixel, or that reads all of its input at once; nullopt of any
// other, a 1x1 convolution over many pixels and the backward operations among them.
std::optional<MatrixProduct> AsMatrixProduct(const ConvProblem& problem);

// For people. `variants` are the SummaryFields of the model as it is, first, and as it could be;
// empty: not asked for.
std::string LintText(const std::vector<LintFinding>& findings,
                     const std::vector<output::Fields>& variants, int width, bool color);
// Workflow commands of GitHub Actions, which become annotations:
// "::warning file=list.csv,line=3,title=convtune tensor-cores::...".
std::string LintGithub(const std::vector<LintFinding>& findings);

}  // namespace convtune::cli::commands::lint
