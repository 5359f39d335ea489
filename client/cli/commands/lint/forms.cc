#include "client/cli/commands/lint/forms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/variants.h"
#include "proto/convert/problem_list.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::commands::lint {
namespace {

// A form with more times the arithmetic than this gains nothing by tensor cores.
constexpr double kMostWork = 8;

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

ConvProblemSpec SpecOf(const ConvProblem& problem) {
  std::vector<Violation> none;
  return ParseProblemTokens(problem.ToText(), &none);
}

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

}  // namespace

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
    ConvProblemSpec spec = SpecOf(problem);
    spec.groups = groups / merged;
    spec.w_dims[1] = in * merged;
    AddForm(problem, absl::StrCat("with every ", merged, " groups merged into one"),
            ConvProblem::Create(spec), &forms);
    break;
  }
  if (in % step != 0 || out % step != 0) {
    ConvProblemSpec spec = SpecOf(problem);
    spec.x_dims[1] = RoundUp(in, step) * groups;
    spec.w_dims[1] = RoundUp(in, step);
    spec.w_dims[0] = RoundUp(out, step) * groups;
    std::vector<std::string> padded;
    const auto pad = [&](int64_t channels, const std::string& kind) {
      if (channels % step == 0) return;
      padded.push_back(absl::StrCat(channels, " ", kind, channels == 1 ? " channel" : " channels",
                                    padded.empty() ? " padded to " : " to ",
                                    RoundUp(channels, step)));
    };
    pad(in, "input");
    pad(out, "output");
    AddForm(
        problem,
        absl::StrCat("with ", absl::StrJoin(padded, " and "), groups > 1 ? " in each group" : ""),
        ConvProblem::Create(spec), &forms);
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

}  // namespace convtune::cli::commands::lint
