// A ConvProblem is a convolution as cuDNN sees it: validated, canonical, immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/enums.h"
#include "proto/model/violation.h"

namespace convtune {

namespace v1 {
class ConvProblem;
class ProblemSpec;
}  // namespace v1

// Of a problem that names none, and of a text form without "align=".
inline constexpr int kDefaultAlignmentBytes = 16;

// Value type; copies are cheap enough to pass about, const is thread-safe.
//
// Canonical form: at least two spatial dimensions (1-D is N, C, 1, W), all
// lists full length, strides always present with those of size-1 dimensions
// replaced by what the packed layout would give them, and layout NCHW or NHWC
// wherever the strides of all three tensors say so (NCHW if both fit).
class ConvProblem {
 public:
  // Returns the problem that `given` describes, or adds every rule that it breaks to
  // `violations` (never empty on failure) and returns nullopt. A violation's field is a path from
  // `given`, with `prefix`, if there is one, and a dot before it: "problems[3].problem.pad_low[1]".
  static std::optional<ConvProblem> Create(const v1::ConvProblem& given,
                                           std::vector<Violation>* violations,
                                           std::string_view prefix = "");
  // The same of either form. All that is wrong with a text is a violation of the field "text".
  static std::optional<ConvProblem> Create(const v1::ProblemSpec& given,
                                           std::vector<Violation>* violations,
                                           std::string_view prefix = "");
  // The same; INVALID_ARGUMENT with ToString(violations).
  static absl::StatusOr<ConvProblem> Create(const v1::ConvProblem& given);
  // Reads the text form (proto/model/README.md). While tokens cannot be read, the
  // problem that the others make is not judged.
  static std::optional<ConvProblem> Parse(std::string_view text,
                                          std::vector<Violation>* violations);
  // The same; INVALID_ARGUMENT with ToString(violations).
  static absl::StatusOr<ConvProblem> Parse(std::string_view text);

  Operation operation() const { return operation_; }
  // Number of spatial dimensions, 2 or 3.
  int spatial_rank() const { return static_cast<int>(x_dims_.size()) - 2; }
  // Forward shapes: N, C, spatial; K, C/groups, spatial; N, K, spatial.
  const std::vector<int64_t>& x_dims() const { return x_dims_; }
  const std::vector<int64_t>& w_dims() const { return w_dims_; }
  const std::vector<int64_t>& y_dims() const { return y_dims_; }
  // Element strides in the order of the dimensions.
  const std::vector<int64_t>& x_strides() const { return x_strides_; }
  const std::vector<int64_t>& w_strides() const { return w_strides_; }
  const std::vector<int64_t>& y_strides() const { return y_strides_; }
  const std::vector<int64_t>& pad_low() const { return pad_low_; }
  const std::vector<int64_t>& pad_high() const { return pad_high_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  const std::vector<int64_t>& dilations() const { return dilations_; }
  int64_t groups() const { return groups_; }
  // The longest side of the filter.
  int64_t filter_extent() const;
  DataType data_type() const { return data_type_; }
  DataType output_type() const { return output_type_; }
  DataType compute_type() const { return compute_type_; }
  // Meaningful with an epilogue only; else F32 (F64 for F64).
  DataType intermediate_type() const { return intermediate_type_; }
  TensorLayout layout() const { return layout_; }
  ConvolutionMode mode() const { return mode_; }
  const std::vector<EpilogueOp>& epilogue() const { return epilogue_; }
  int alignment_bytes() const { return alignment_bytes_; }
  // 0: the whole GPU.
  int sm_count_target() const { return sm_count_target_; }
  bool symmetric_padding() const { return pad_low_ == pad_high_; }

  // The same problem for addresses of another alignment, a power of two from 1
  // to 256. What was tuned for an alignment serves every stricter one, so a
  // look-up may also try the smaller ones.
  ConvProblem WithAlignment(int bytes) const;

  // Canonical text form; Parse(ToText()) gives an equal problem.
  std::string ToText() const;
  // Every field is set, but strides only for STRIDED and the intermediate type only with an
  // epilogue; Create(ToProto()) gives an equal problem.
  v1::ConvProblem ToProto() const;
  // Bytes of the tensors that the operation touches, without workspace.
  int64_t TensorBytes() const;

  friend bool operator==(const ConvProblem& a, const ConvProblem& b) = default;

 private:
  class Builder;

  ConvProblem() = default;

  Operation operation_ = Operation::kFwd;
  std::vector<int64_t> x_dims_, w_dims_, y_dims_;
  std::vector<int64_t> x_strides_, w_strides_, y_strides_;
  std::vector<int64_t> pad_low_, pad_high_, strides_, dilations_;
  int64_t groups_ = 1;
  DataType data_type_ = DataType::kF32;
  DataType output_type_ = DataType::kF32;
  DataType compute_type_ = DataType::kF32;
  DataType intermediate_type_ = DataType::kF32;
  TensorLayout layout_ = TensorLayout::kNchw;
  ConvolutionMode mode_ = ConvolutionMode::kCrossCorrelation;
  std::vector<EpilogueOp> epilogue_;
  int alignment_bytes_ = kDefaultAlignmentBytes;
  int sm_count_target_ = 0;
};

// Number of elements, or kMaxElements + 1 (tensor_rules.h) if there are more.
int64_t ElementCount(const std::vector<int64_t>& dims);

// Products of the element of the output that has most of them, those with
// padding included: C/groups times the filter's size for fwd, K/groups times it
// for bwd_data, all places of all images for bwd_filter.
int64_t ProductsPerElement(const ConvProblem& problem);

// Floating-point operations of one run: two for each multiply-add of the direct method, those
// with padding included, whatever the operation.
double EstimatedFlops(const ConvProblem& problem);

// Reads the tokens of a text form, for example
//   fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32
// without judging the problem itself. Adds a violation for each unknown, doubled or unreadable
// token; the field is the token's name as typed. Returns what could be read.
v1::ConvProblem ParseProblemTokens(std::string_view text, std::vector<Violation>* violations);

}  // namespace convtune
