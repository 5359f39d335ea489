#include "proto/model/problem/conv_problem.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/strings.h"
#include "proto/model/problem/problem_rules.h"

namespace convtune {
namespace {

void CheckLayout(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  const bool x = !spec.x_strides.empty();
  const bool w = !spec.w_strides.empty();
  const bool y = !spec.y_strides.empty();
  if (x || w || y) {
    constexpr std::string_view kAllOrNone =
        "required: x_strides, w_strides and y_strides go together";
    if (!x) rules::Add(violations, "x_strides", kAllOrNone);
    if (!w) rules::Add(violations, "w_strides", kAllOrNone);
    if (!y) rules::Add(violations, "y_strides", kAllOrNone);
    if (spec.layout && *spec.layout != TensorLayout::kStrided) {
      rules::Add(violations, "layout",
                 Concat("must be left out with strides, is ", Name(*spec.layout)));
    }
  } else if (spec.layout == TensorLayout::kStrided) {
    rules::Add(violations, "layout", "strided needs x_strides, w_strides and y_strides");
  }
}

void CheckScalars(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  if (!spec.operation) {
    rules::Add(violations, "operation", "required: fwd, bwd_data or bwd_filter");
  }
  const int64_t alignment = spec.alignment_bytes.value_or(kDefaultAlignmentBytes);
  if (alignment < 1 || alignment > 256 || (alignment & (alignment - 1)) != 0) {
    rules::Add(violations, "alignment_bytes",
               Concat("must be a power of two from 1 to 256, is ", alignment));
  }
  const int64_t sms = spec.sm_count_target.value_or(0);
  if (sms < 0 || sms > 1024) {
    rules::Add(violations, "sm_count_target", Concat("must be from 0 to 1024, is ", sms));
  }
}

absl::Status InvalidProblem(const std::vector<Violation>& violations) {
  return absl::InvalidArgumentError(ToString(violations));
}

int64_t Product(const std::vector<int64_t>& values, size_t first) {
  int64_t product = 1;
  for (size_t i = first; i < values.size(); ++i) product *= values[i];
  return product;
}

}  // namespace

std::optional<ConvProblem> ConvProblem::Create(ConvProblemSpec spec,
                                               std::vector<Violation>* violations) {
  const size_t before = violations->size();
  CheckScalars(spec, violations);
  CheckLayout(spec, violations);
  const std::optional<rules::Types> types = rules::ResolveTypes(spec, violations);

  ConvProblem p;
  const size_t typed_entries = spec.x_dims.size();
  p.x_dims_ = std::move(spec.x_dims);
  p.w_dims_ = std::move(spec.w_dims);
  const bool dims_ok = rules::CheckDims(&p.x_dims_, &p.w_dims_, violations);
  const bool rank_ok = typed_entries >= 3 && typed_entries <= 5;
  const int typed_rank = rank_ok ? static_cast<int>(typed_entries) - 2 : 0;
  if (rank_ok) {
    p.pad_low_ = std::move(spec.pad_low);
    p.pad_high_ = std::move(spec.pad_high);
    p.strides_ = std::move(spec.strides);
    p.dilations_ = std::move(spec.dilations);
    bool window_ok = rules::SpreadSpatial(&p.pad_low_, "pad_low", typed_rank, 0, 0, violations);
    if (p.pad_high_.empty()) {
      p.pad_high_ = p.pad_low_;
    } else {
      window_ok &= rules::SpreadSpatial(&p.pad_high_, "pad_high", typed_rank, 0, 0, violations);
    }
    window_ok &= rules::SpreadSpatial(&p.strides_, "strides", typed_rank, 1, 1, violations);
    window_ok &= rules::SpreadSpatial(&p.dilations_, "dilations", typed_rank, 1, 1, violations);
    p.groups_ = spec.groups.value_or(1);
    if (dims_ok) rules::CheckGroups(p.groups_, p.x_dims_, p.w_dims_, violations);
    if (dims_ok && window_ok) {
      p.y_dims_ = rules::OutputDims(p.x_dims_, p.w_dims_, p.pad_low_, p.pad_high_, p.strides_,
                                    p.dilations_, typed_rank, violations);
    }
  }

  if (!spec.x_strides.empty() && !spec.w_strides.empty() && !spec.y_strides.empty()) {
    p.x_strides_ = std::move(spec.x_strides);
    p.w_strides_ = std::move(spec.w_strides);
    p.y_strides_ = std::move(spec.y_strides);
    if (dims_ok) {
      rules::CheckStrides(&p.x_strides_, "x_strides", p.x_dims_, typed_rank, violations);
      rules::CheckStrides(&p.w_strides_, "w_strides", p.w_dims_, typed_rank, violations);
    }
    if (!p.y_dims_.empty()) {
      rules::CheckStrides(&p.y_strides_, "y_strides", p.y_dims_, typed_rank, violations);
    }
  } else if (violations->size() == before) {
    const TensorLayout layout = spec.layout.value_or(TensorLayout::kNchw);
    p.x_strides_ = rules::PackedStrides(p.x_dims_, layout);
    p.w_strides_ = rules::PackedStrides(p.w_dims_, layout);
    p.y_strides_ = rules::PackedStrides(p.y_dims_, layout);
  }
  if (violations->size() != before) return std::nullopt;

  const Packing packing = CanonicalizeStrides({{p.x_dims_.data(), p.x_strides_.data()},
                                               {p.w_dims_.data(), p.w_strides_.data()},
                                               {p.y_dims_.data(), p.y_strides_.data()}},
                                              p.spatial_rank() + 2);
  p.layout_ = packing == Packing::kNchw   ? TensorLayout::kNchw
              : packing == Packing::kNhwc ? TensorLayout::kNhwc
                                          : TensorLayout::kStrided;

  p.operation_ = *spec.operation;
  p.data_type_ = types->data;
  p.output_type_ = types->output;
  p.compute_type_ = types->compute;
  p.intermediate_type_ = types->intermediate;
  p.mode_ = spec.mode.value_or(ConvolutionMode::kCrossCorrelation);
  p.epilogue_ = std::move(spec.epilogue);
  p.alignment_bytes_ = static_cast<int>(spec.alignment_bytes.value_or(kDefaultAlignmentBytes));
  p.sm_count_target_ = static_cast<int>(spec.sm_count_target.value_or(0));
  return p;
}

absl::StatusOr<ConvProblem> ConvProblem::Create(const ConvProblemSpec& spec) {
  std::vector<Violation> violations;
  std::optional<ConvProblem> problem = Create(spec, &violations);
  if (!problem) return InvalidProblem(violations);
  return *std::move(problem);
}

std::optional<ConvProblem> ConvProblem::Parse(std::string_view text,
                                              std::vector<Violation>* violations) {
  const size_t before = violations->size();
  ConvProblemSpec spec = ParseProblemTokens(text, violations);
  if (violations->size() != before) return std::nullopt;
  return Create(std::move(spec), violations);
}

absl::StatusOr<ConvProblem> ConvProblem::Parse(std::string_view text) {
  std::vector<Violation> violations;
  std::optional<ConvProblem> problem = Parse(text, &violations);
  if (!problem) return InvalidProblem(violations);
  return *std::move(problem);
}

ConvProblem ConvProblem::WithAlignment(int bytes) const {
  ConvProblem copy = *this;
  copy.alignment_bytes_ = bytes;
  return copy;
}

int64_t ConvProblem::filter_extent() const {
  return *std::max_element(w_dims_.begin() + 2, w_dims_.end());
}

int64_t ConvProblem::TensorBytes() const {
  const int64_t x = rules::Extent(x_dims_, x_strides_);
  const int64_t w = rules::Extent(w_dims_, w_strides_);
  const int64_t y = rules::Extent(y_dims_, y_strides_);
  const auto type = [this](Operation writes) {
    return SizeOf(operation_ == writes ? output_type_ : data_type_);
  };
  int64_t bytes =
      x * type(Operation::kBwdData) + w * type(Operation::kBwdFilter) + y * type(Operation::kFwd);
  for (const EpilogueOp op : epilogue_) {
    if (op == EpilogueOp::kAdd) bytes += y * SizeOf(output_type_);
    if (op == EpilogueOp::kBias) bytes += y_dims_[1] * SizeOf(output_type_);
  }
  return bytes;
}

int64_t ProductsPerElement(const ConvProblem& problem) {
  switch (problem.operation()) {
    case Operation::kBwdData:
      return problem.w_dims()[0] / problem.groups() * Product(problem.w_dims(), 2);
    case Operation::kBwdFilter:
      return problem.y_dims()[0] * Product(problem.y_dims(), 2);
    case Operation::kFwd:
      break;
  }
  return Product(problem.w_dims(), 1);
}

double MultiplyAdds(const ConvProblem& problem) {
  // The same for each operation.
  double count = 1;
  for (const int64_t dim : problem.y_dims()) count *= static_cast<double>(dim);
  return count * static_cast<double>(Product(problem.w_dims(), 1));
}

}  // namespace convtune
