#include "client/cli/commands/lint/lint.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/answers.h"
#include "client/cli/calls/candidate_list.h"
#include "client/cli/output/units.h"
#include "convtune/v1/problem.pb.h"
#include "proto/convert/problem_list.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::commands::lint {
namespace {

// A form with more times the arithmetic than this gains nothing by tensor cores.
constexpr double kMostWork = 8;

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

void AddForm(const ConvProblem& problem, const std::string& how,
             const absl::StatusOr<ConvProblem>& form, std::vector<Form>* forms) {
  if (!form.ok() || *form == problem) return;
  const double before = EstimatedFlops(problem);
  const double work = before > 0 ? EstimatedFlops(*form) / before : 1;
  if (work <= kMostWork) forms->push_back({how, *form, work});
}

// What the channels of a group must be a multiple of.
int64_t ChannelStep(DataType type) {
  const bool narrow = type == DataType::kI8 || type == DataType::kE4M3 || type == DataType::kE5M2;
  return narrow ? 16 : 8;
}

// From this many times the arithmetic on, a form is proposed as a notice, not as a warning.
constexpr double kMuchMoreWork = 2;

std::optional<calls::CandidateList> ListOf(const ConvProblem& problem, const LintInput& input) {
  const auto found = input.known.find(problem.ToText());
  if (found == input.known.end()) return std::nullopt;
  calls::CandidateList list(found->second, input.no_tf32);
  if (list.empty()) return std::nullopt;
  return list;
}

bool WantsTensorCores(const ConvProblem& problem) { return problem.data_type() != DataType::kF64; }

double WholeWork(const std::vector<ProblemRow>& rows) {
  double work = 0;
  for (const ProblemRow& row : rows) work += WorkOf(row);
  return work;
}

// Bytes of the smaller of x and y, which a transposing candidate has copies of.
int64_t SmallerActivation(const ConvProblem& problem) {
  const auto bytes = [&](const std::vector<int64_t>& dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    return count * SizeOf(problem.data_type());
  };
  return std::min(bytes(problem.x_dims()), bytes(problem.y_dims()));
}

// The leanest candidate has no copy of x or y in its workspace.
bool IsWithoutCopies(const calls::CandidateList& list, const ConvProblem& problem) {
  return list.leanest().workspace_bytes() < SmallerActivation(problem);
}

bool IsLean(const calls::CandidateList& list, const ConvProblem& problem) {
  return list.on_tensor_cores() > 0 && IsWithoutCopies(list, problem);
}

bool IsLeanInOtherLayout(const ConvProblem& problem, const LintInput& input) {
  const auto other = OtherLayout(problem);
  const auto list = other ? ListOf(*other, input) : std::nullopt;
  return list && IsLean(*list, problem);
}

// What is listed, and how much less workspace there is than the first takes.
std::string LeanestWords(const calls::CandidateList& list) {
  return &list.leanest() == &list.first()
             ? list.ToText()
             : absl::StrCat(list.ToText(), "; least workspace",
                            calls::OnTensorCores(list.leanest()) ? " on tensor cores: " : ": ",
                            calls::WithWorkspace(list.leanest()));
}

// Collects the findings of one convolution.
class Linter {
 public:
  Linter(const ProblemRow& row, double share, const LintInput& input,
         std::vector<LintFinding>* findings)
      : row_(row),
        problem_(row.problem),
        share_(share),
        input_(input),
        list_(ListOf(row.problem, input)),
        findings_(findings) {}

  void Run() {
    CheckMatrixProduct();
    if (!list_) {
      Add("no-candidate", LintSeverity::kError, WhyNoList());
      return;
    }
    if (IsObserved(problem_, input_)) return;
    CheckLastResort();
    CheckTensorCores();
    CheckLayout();
    CheckWorkspace();
    CheckDeterminism();
    CheckCompilation();
  }

 private:
  std::string WhyNoList() const {
    const std::string text = problem_.ToText();
    const auto tuning = input_.known.find(text);
    const bool known = tuning != input_.known.end();
    if (known && !calls::CandidateList(tuning->second, /*no_tf32=*/false).empty()) {
      return "cuDNN lists nothing for it without tensor cores";
    }
    const auto failure = input_.failures.find(text);
    if (known && failure == input_.failures.end()) {
      return "cuDNN lists nothing for it that can be built";
    }
    return absl::StrCat("there is no list of its candidates: ",
                        failure != input_.failures.end()
                            ? failure->second
                            : "the daemon keeps no reason beyond a job's first 20");
  }

  LintFinding Make(const char* kind, LintSeverity severity, const std::string& message) const {
    LintFinding finding{kind, severity, problem_.ToText(), row_.count, row_.source, share_, message,
                        {},   ""};
    if (list_) AddProof("as it is", problem_, LeanestWords(*list_), &finding);
    return finding;
  }

  LintFinding& Add(const char* kind, LintSeverity severity, const std::string& message) {
    findings_->push_back(Make(kind, severity, message));
    return findings_->back();
  }

  static void AddProof(const std::string& form, const ConvProblem& problem,
                       const std::string& words, LintFinding* finding) {
    finding->proof.push_back({form, problem.ToText(), words});
  }

  void CheckMatrixProduct() {
    const auto product = AsMatrixProduct(problem_);
    if (!product) return;
    // A first choice on tensor cores that copies nothing leaves less to gain.
    const bool served = list_ && calls::OnTensorCores(list_->first()) &&
                        list_->first().workspace_bytes() < SmallerActivation(problem_);
    LintFinding& finding =
        Add("matrix-product", served ? LintSeverity::kNotice : LintSeverity::kWarning,
            absl::StrCat(product->why, ": it is a matrix product of ", product->m, "x", product->k,
                         " by ", product->k, "x", product->n));
    finding.proposal = product->linear;
  }

  void CheckLastResort() {
    if (!list_->last_resort_only()) return;
    Add("last-resort", LintSeverity::kError,
        absl::StrCat("mode FALLBACK alone lists what can be built: ",
                     output::Counted(list_->size(), "engine config"), " of last resort"));
  }

  void CheckTensorCores() {
    if (!WantsTensorCores(problem_) || IsLean(*list_, problem_)) return;
    const bool none = list_->on_tensor_cores() == 0;
    // CheckLayout proposes the other layout.
    if (!none && IsLeanInOtherLayout(problem_, input_)) return;
    LintFinding finding =
        Make("tensor-cores", LintSeverity::kNotice,
             none ? absl::StrCat("none of ", list_->size(), " candidates runs on tensor cores")
                  : absl::StrCat("all candidates on tensor cores (", list_->on_tensor_cores(),
                                 " of ", list_->size(), ") need at least ",
                                 output::FormatBytes(list_->leanest().workspace_bytes()),
                                 " of workspace"));
    const std::string as_it_is = finding.message;
    bool lean = false;
    for (const Form& form : TensorCoreForms(problem_)) {
      const auto list = ListOf(form.problem, input_);
      if (!list) continue;
      const bool form_lean = IsLean(*list, problem_);
      AddProof(absl::StrCat(form.how, absl::StrFormat(", %.2f times the arithmetic", form.work)),
               form.problem, LeanestWords(*list), &finding);
      // The first form that is lean, else the first with any on tensor cores.
      const bool better = finding.proposal.empty()
                              ? list->on_tensor_cores() > 0 && (none || form_lean)
                              : form_lean && !lean;
      if (!better) continue;
      lean = form_lean;
      finding.message =
          absl::StrCat(as_it_is, "; ", form.how, ": ", list->on_tensor_cores(), " of ",
                       list->size(), ", one with ", calls::WorkspaceWords(list->leanest()));
      finding.proposal = form.problem.ToText();
      finding.severity = form.work < kMuchMoreWork ? LintSeverity::kWarning : LintSeverity::kNotice;
    }
    if (finding.proposal.empty()) {
      if (!none) return;
      absl::StrAppend(&finding.message, ", nor does one of any form that was tried");
    }
    findings_->push_back(std::move(finding));
  }

  void CheckLayout() {
    const auto other = OtherLayout(problem_);
    if (!other || IsWithoutCopies(*list_, problem_)) return;
    const auto list = ListOf(*other, input_);
    if (!list || (list_->on_tensor_cores() > 0 && list->on_tensor_cores() == 0)) return;
    if (!IsWithoutCopies(*list, problem_)) return;
    const std::string name(Name(other->layout()));
    LintFinding& finding =
        Add("layout", LintSeverity::kWarning,
            absl::StrCat(
                list_->on_tensor_cores() > 0 ? "each candidate on tensor cores" : "each candidate",
                " needs at least ", output::FormatBytes(list_->leanest().workspace_bytes()),
                " of workspace; in ", name, " one takes ", calls::WorkspaceWords(list->leanest())));
    AddProof("in " + name, *other, LeanestWords(*list), &finding);
    finding.proposal = other->ToText();
  }

  void CheckWorkspace() {
    const int64_t first = list_->first().workspace_bytes();
    if (first <= input_.max_workspace) return;
    // The first in cuDNN's order that keeps the limit.
    const auto& all = list_->all();
    const auto fits = std::find_if(all.begin(), all.end(), [&](const v1::Candidate* candidate) {
      return candidate->workspace_bytes() <= input_.max_workspace;
    });
    // Rounded, a little more than the limit is no more than it.
    const bool close = output::FormatBytes(first) == output::FormatBytes(input_.max_workspace);
    const auto words = [close](int64_t bytes) {
      return close ? absl::StrCat(bytes, " B") : output::FormatBytes(bytes);
    };
    const std::string over = absl::StrCat("cuDNN's first choice needs ", words(first),
                                          " of workspace, more than ", words(input_.max_workspace));
    if (fits == all.end()) {
      Add("workspace", LintSeverity::kError,
          absl::StrCat(over, ", and none of ", list_->size(), " candidates needs less than that"));
      return;
    }
    LintFinding& finding = Add("workspace", LintSeverity::kWarning, over);
    AddProof(absl::StrCat("below ", output::FormatBytes(input_.max_workspace)), problem_,
             absl::StrCat("first ", calls::WithWorkspace(**fits)), &finding);
  }

  void CheckDeterminism() {
    if (list_->deterministic() > 0) return;
    Add("nondeterministic", LintSeverity::kWarning,
        absl::StrCat("none of ", list_->size(), " candidates is deterministic"));
  }

  void CheckCompilation() {
    if (!calls::CompiledAtRunTime(list_->first())) return;
    const auto& all = list_->all();
    const auto ready = std::find_if(all.begin(), all.end(), [](const v1::Candidate* candidate) {
      return !calls::CompiledAtRunTime(*candidate);
    });
    const bool none = ready == all.end();
    LintFinding& finding =
        Add("compiled", none ? LintSeverity::kWarning : LintSeverity::kNotice,
            none ? "every candidate is compiled at run time: each process pays for that"
                 : "cuDNN's first choice is compiled at run time: each process pays for that");
    if (!none) {
      AddProof(
          absl::StrCat("one of ", all.size() - static_cast<size_t>(list_->compiled_at_run_time()),
                       " that are ready"),
          problem_, absl::StrCat("first ", calls::WithWorkspace(**ready)), &finding);
    }
  }

  const ProblemRow& row_;
  const ConvProblem& problem_;
  const double share_;
  const LintInput& input_;
  const std::optional<calls::CandidateList> list_;
  std::vector<LintFinding>* const findings_;
};

}  // namespace

bool IsObserved(const ConvProblem& problem, const LintInput& input) {
  const auto found = input.known.find(problem.ToText());
  return found != input.known.end() && std::ranges::count(found->second.incomplete_reasons(),
                                                          int{v1::INCOMPLETE_REASON_OBSERVED}) > 0;
}

std::optional<ConvProblem> OtherLayout(const ConvProblem& problem) {
  if (problem.layout() == TensorLayout::kStrided) return std::nullopt;
  const bool nhwc = problem.layout() == TensorLayout::kNhwc;
  auto other = calls::Vary(
      problem, {std::nullopt, std::nullopt, nhwc ? TensorLayout::kNchw : TensorLayout::kNhwc, {}});
  if (!other || *other == problem) return std::nullopt;
  return other;
}

std::vector<Form> TensorCoreForms(const ConvProblem& problem) {
  std::vector<Form> forms;
  if (problem.data_type() == DataType::kF64 || problem.layout() == TensorLayout::kStrided) {
    return forms;
  }
  const int64_t step = ChannelStep(problem.data_type());
  const int64_t groups = problem.groups();
  const int64_t in = problem.w_dims()[1];
  const int64_t out = problem.w_dims()[0] / groups;
  for (int64_t merged = 2; merged <= groups; ++merged) {
    if (groups % merged != 0 || in * merged % step != 0 || out * merged % step != 0) continue;
    v1::ConvProblem given = problem.ToProto();
    given.set_groups(groups / merged);
    given.set_w_dims(1, in * merged);
    AddForm(problem, absl::StrCat("with every ", merged, " groups merged into one"),
            ConvProblem::Create(given), &forms);
    break;
  }
  if (in % step != 0 || out % step != 0) {
    v1::ConvProblem given = problem.ToProto();
    given.set_x_dims(1, RoundUp(in, step) * groups);
    given.set_w_dims(1, RoundUp(in, step));
    given.set_w_dims(0, RoundUp(out, step) * groups);
    std::vector<std::string> padded;
    const auto pad = [&](int64_t channels, const std::string& kind) {
      if (channels % step == 0) return;
      padded.push_back(absl::StrCat(output::Counted(channels, kind + " channel"),
                                    padded.empty() ? " padded to " : " to ",
                                    RoundUp(channels, step)));
    };
    pad(in, "input");
    pad(out, "output");
    AddForm(
        problem,
        absl::StrCat("with ", absl::StrJoin(padded, " and "), groups > 1 ? " in each group" : ""),
        ConvProblem::Create(given), &forms);
  }
  if (problem.data_type() == DataType::kF32) {
    const auto half = calls::Vary(problem, {std::nullopt, DataType::kF16, problem.layout(), {}});
    if (half) AddForm(problem, "in f16", *half, &forms);
  }
  if (const auto other = OtherLayout(problem)) {
    const std::string in_other = absl::StrCat("in ", std::string(Name(other->layout())));
    if (other->layout() == TensorLayout::kNhwc) {
      for (const Form& form : std::vector<Form>(forms)) {
        const auto nhwc = OtherLayout(form.problem);
        if (nhwc) AddForm(problem, absl::StrCat(form.how, ", ", in_other), *nhwc, &forms);
      }
    }
    AddForm(problem, in_other, *other, &forms);
  }
  std::stable_sort(forms.begin(), forms.end(),
                   [](const Form& a, const Form& b) { return a.work < b.work; });
  return forms;
}

std::optional<MatrixProduct> AsMatrixProduct(const ConvProblem& problem) {
  if (problem.operation() != Operation::kFwd || problem.groups() != 1 ||
      problem.mode() != ConvolutionMode::kCrossCorrelation) {
    return std::nullopt;
  }
  bool apart = true, larger = false, whole = true;
  MatrixProduct product;
  product.m = problem.x_dims()[0];
  product.n = problem.w_dims()[0];
  product.k = problem.w_dims()[1];
  const int rank = problem.spatial_rank();
  std::vector<std::string> unfolds, pixels = {"0"}, kernel = {"1"};
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i);
    if (problem.pad_low()[at] != 0 || problem.pad_high()[at] != 0) return std::nullopt;
    const int64_t size = problem.w_dims()[at + 2];
    if (size > 1 && problem.dilations()[at] != 1) return std::nullopt;
    const bool all = size == problem.x_dims()[at + 2];
    apart = apart && (all || size == problem.strides()[at]);
    larger = larger || size > 1;
    whole = whole && all;
    product.m *= problem.y_dims()[at + 2];
    product.k *= size;
    unfolds.push_back(absl::StrCat(".unfold(", i + 2, ", ", size, ", ", size, ")"));
    pixels.push_back(absl::StrCat(i + 2));
    kernel.push_back(absl::StrCat(i + 2 + rank));
  }
  if (whole) {
    product.why = larger ? "its kernel is as large as its input" : "its input is one pixel";
    product.linear = "F.linear(x.flatten(1), w.flatten(1), b)[:, :";
    for (int i = 0; i < rank; ++i) product.linear += ", None";
    product.linear += "]";
    return product;
  }
  if (!apart || !larger) return std::nullopt;
  product.why = "its kernel is as large as its stride and nothing is padded";
  std::vector<std::string> back = {"0", absl::StrCat(rank + 1)};
  for (int i = 0; i < rank; ++i) back.push_back(absl::StrCat(i + 1));
  product.linear =
      absl::StrCat("F.linear(x", absl::StrJoin(unfolds, ""), ".permute(",
                   absl::StrJoin(pixels, ", "), ", ", absl::StrJoin(kernel, ", "), ").flatten(",
                   rank + 1, "), w.flatten(1), b).permute(", absl::StrJoin(back, ", "), ")");
  return product;
}

std::string_view Name(LintSeverity severity) {
  constexpr std::string_view kNames[] = {"notice", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

std::vector<ProblemRow> ProblemsToList(const std::vector<ProblemRow>& rows,
                                       const LintInput& input) {
  std::vector<ProblemRow> wanted;
  std::set<std::string> seen;
  const auto add = [&](const ConvProblem& problem) {
    const std::string text = problem.ToText();
    if (input.known.contains(text) || input.failures.contains(text)) return;
    if (seen.insert(text).second) wanted.push_back({problem, 1, "VARIANT"});
  };
  for (const ProblemRow& row : rows) {
    if (const auto other = OtherLayout(row.problem)) add(*other);
    const auto list = ListOf(row.problem, input);
    if (!list || !WantsTensorCores(row.problem) || IsLean(*list, row.problem)) continue;
    if (list->on_tensor_cores() > 0 && IsLeanInOtherLayout(row.problem, input)) continue;
    for (const Form& form : TensorCoreForms(row.problem)) add(form.problem);
  }
  return wanted;
}

std::vector<LintFinding> FindingsOf(const std::vector<ProblemRow>& rows, const LintInput& input) {
  const double whole = WholeWork(rows);
  std::vector<LintFinding> findings;
  for (const ProblemRow& row : rows) {
    Linter(row, whole > 0 ? WorkOf(row) / whole : 0, input, &findings).Run();
  }
  std::erase_if(findings, [&](const LintFinding& finding) {
    return std::ranges::count(input.ignored, finding.kind) > 0;
  });
  std::stable_sort(findings.begin(), findings.end(),
                   [](const LintFinding& a, const LintFinding& b) {
                     return std::pair(a.severity, a.share) > std::pair(b.severity, b.share);
                   });
  return findings;
}

output::Fields SummaryFields(const std::vector<ProblemRow>& rows, const LintInput& input) {
  int without_candidate = 0, nondeterministic = 0, compiled = 0;
  int64_t most_workspace = 0;
  double on_tensor_cores = 0;
  std::set<std::string> batches, types;
  const double whole = WholeWork(rows);
  for (const ProblemRow& row : rows) {
    batches.insert(absl::StrCat(row.problem.x_dims()[0]));
    types.insert(std::string(Name(row.problem.data_type())));
    const auto list = ListOf(row.problem, input);
    if (!list) {
      ++without_candidate;
      continue;
    }
    if (calls::OnTensorCores(list->first()) && whole > 0) on_tensor_cores += WorkOf(row) / whole;
    if (list->deterministic() == 0) ++nondeterministic;
    if (calls::CompiledAtRunTime(list->first())) ++compiled;
    most_workspace = std::max(most_workspace, list->first().workspace_bytes());
  }
  // "-" where the convolutions differ in it.
  const auto common = [](const std::set<std::string>& texts) {
    return output::Value(texts.size() == 1 ? *texts.begin() : "-");
  };
  return {{"batch", "BATCH", common(batches).Right()},
          {"dtype", "DTYPE", common(types)},
          {"problems", "CONVOLUTIONS", rows.size()},
          {"withoutCandidate", "WITHOUT CANDIDATE", without_candidate},
          {"onTensorCores", "ON TENSOR CORES",
           output::Value(on_tensor_cores).Shown(output::FormatShare(on_tensor_cores))},
          {"nondeterministic", "NONDETERMINISTIC", nondeterministic},
          {"compiled", "COMPILED", compiled},
          {"mostWorkspaceBytes", "MOST WORKSPACE", output::Bytes(most_workspace)}};
}

}  // namespace convtune::cli::commands::lint
