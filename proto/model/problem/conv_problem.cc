#include "proto/model/problem/conv_problem.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "convtune/v1/problem.pb.h"
#include "proto/base/strings.h"
#include "proto/model/problem/tensor_rules.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

using Numbers = google::protobuf::RepeatedField<int64_t>;

constexpr size_t kMaxTextBytes = 4096;
constexpr std::string_view kTypeNames = "f64, f32, f16, bf16, i8, i32, e4m3 or e5m2";

// Product of two non-negative numbers, or kMaxElements + 1 if it is larger.
int64_t CappedProduct(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > kMaxElements / b ? kMaxElements + 1 : a * b;
}

// Distance from the first to the last element plus one, capped likewise.
int64_t Extent(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  int64_t extent = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    extent = std::min(extent + CappedProduct(dims[i] - 1, strides[i]), kMaxElements + 1);
  }
  return extent;
}

int64_t Product(const std::vector<int64_t>& values, size_t first) {
  int64_t product = 1;
  for (size_t i = first; i < values.size(); ++i) product *= values[i];
  return product;
}

// What cuDNN's convolutions take; the first of a list is the default.
struct TypeRule {
  DataType data;
  std::vector<DataType> outputs;
  std::vector<DataType> computes;
};

// nullptr: no input has the type.
const TypeRule* FindRule(DataType type) {
  using enum DataType;
  static const auto* const kRules = new std::vector<TypeRule>{
      {kF64, {kF64}, {kF64}},
      {kF32, {kF32}, {kF32}},
      {kF16, {kF16, kF32}, {kF32, kF16}},
      {kBF16, {kBF16, kF32}, {kF32}},
      {kI8, {kI32, kI8, kF32}, {kI32}},
      {kE4M3, {kE4M3, kE5M2, kF16, kBF16, kF32}, {kF32}},
      {kE5M2, {kE5M2, kE4M3, kF16, kBF16, kF32}, {kF32}},
  };
  const auto rule = std::find_if(kRules->begin(), kRules->end(),
                                 [type](const TypeRule& r) { return r.data == type; });
  return rule == kRules->end() ? nullptr : &*rule;
}

DataType DefaultOutput(DataType data, bool has_epilogue) {
  return data == DataType::kI8 && !has_epilogue ? DataType::kI32 : data;
}

absl::StatusOr<ConvProblem> OrError(std::optional<ConvProblem> problem,
                                    const std::vector<Violation>& violations) {
  if (problem) return *std::move(problem);
  return absl::InvalidArgumentError(ToString(violations));
}

std::string Joined(const std::vector<int64_t>& values) { return absl::StrJoin(values, "x"); }

}  // namespace

// A Builder makes one problem, and collects the rules that its description breaks.
class ConvProblem::Builder {
 public:
  Builder(const v1::ConvProblem& given, std::string_view prefix, std::vector<Violation>* violations)
      : given_(given), prefix_(prefix), violations_(violations), before_(violations->size()) {}

  std::optional<ConvProblem> Build() {
    SetScalars();
    CheckLayout();
    SetTypes();
    SetDims();
    if (violations_->size() != before_) return std::nullopt;
    const Packing packing = CanonicalizeStrides({{p_.x_dims_.data(), p_.x_strides_.data()},
                                                 {p_.w_dims_.data(), p_.w_strides_.data()},
                                                 {p_.y_dims_.data(), p_.y_strides_.data()}},
                                                p_.spatial_rank() + 2);
    p_.layout_ = packing == Packing::kNchw   ? TensorLayout::kNchw
                 : packing == Packing::kNhwc ? TensorLayout::kNhwc
                                             : TensorLayout::kStrided;
    return std::move(p_);
  }

 private:
  // Adds a violation; returns false.
  bool Fail(std::string_view field, std::string_view rule) {
    violations_->push_back({Concat(prefix_, prefix_.empty() ? "" : ".", field), std::string(rule)});
    return false;
  }
  bool FailAt(std::string_view field, size_t index, std::string_view rule) {
    return Fail(Concat(field, "[", index, "]"), rule);
  }

  // The value of an enumeration's number; nullopt: it is left out or, which is a violation,
  // unknown.
  template <typename E>
  std::optional<E> EnumOf(int number, bool (*is_known)(int), std::string_view field) {
    if (number != 0 && is_known(number)) return static_cast<E>(number);
    if (number != 0) Fail(field, Concat("unknown enum number ", number));
    return std::nullopt;
  }
  std::optional<DataType> TypeOf(v1::DataType type, std::string_view field) {
    return EnumOf<DataType>(type, v1::DataType_IsValid, field);
  }

  bool CheckRange(const Numbers& values, std::string_view field, int64_t min, int64_t max,
                  std::string_view max_text) {
    bool ok = true;
    for (int i = 0; i < values.size(); ++i) {
      if (values[i] >= min && values[i] <= max) continue;
      ok = FailAt(field, static_cast<size_t>(i),
                  Concat("must be from ", min, " to ", max_text, ", is ", values[i]));
    }
    return ok;
  }

  void SetScalars() {
    if (given_.operation() == v1::OPERATION_UNSPECIFIED) {
      Fail("operation", "required: fwd, bwd_data or bwd_filter");
    }
    p_.operation_ = EnumOf<Operation>(given_.operation(), v1::Operation_IsValid, "operation")
                        .value_or(Operation::kFwd);
    p_.mode_ = EnumOf<ConvolutionMode>(given_.mode(), v1::ConvolutionMode_IsValid, "mode")
                   .value_or(ConvolutionMode::kCrossCorrelation);
    if (given_.groups() != 0) p_.groups_ = given_.groups();
    if (given_.alignment_bytes() != 0) p_.alignment_bytes_ = given_.alignment_bytes();
    const int alignment = p_.alignment_bytes_;
    if (alignment < 1 || alignment > 256 || (alignment & (alignment - 1)) != 0) {
      Fail("alignment_bytes", Concat("must be a power of two from 1 to 256, is ", alignment));
    }
    p_.sm_count_target_ = given_.sm_count_target();
    if (p_.sm_count_target_ < 0 || p_.sm_count_target_ > 1024) {
      Fail("sm_count_target", Concat("must be from 0 to 1024, is ", p_.sm_count_target_));
    }
  }

  void CheckLayout() {
    const auto layout = EnumOf<TensorLayout>(given_.layout(), v1::TensorLayout_IsValid, "layout");
    has_strides_ =
        !given_.x_strides().empty() || !given_.w_strides().empty() || !given_.y_strides().empty();
    if (!has_strides_ && layout == TensorLayout::kStrided) {
      Fail("layout", "strided needs x_strides, w_strides and y_strides");
    }
    if (has_strides_ && layout && *layout != TensorLayout::kStrided) {
      Fail("layout", Concat("must be left out with strides, is ", Name(*layout)));
    }
  }

  void SetEpilogue() {
    using enum EpilogueOp;
    for (const int op : given_.epilogue()) p_.epilogue_.push_back(static_cast<EpilogueOp>(op));
    if (p_.epilogue_.empty()) return;
    const std::vector<EpilogueOp> forms[] = {{kBias}, {kBias, kRelu}, {kAdd, kBias, kRelu}};
    if (std::find(std::begin(forms), std::end(forms), p_.epilogue_) == std::end(forms)) {
      Fail("epilogue", "must be bias, bias+relu or add+bias+relu");
    }
    if (p_.operation_ != Operation::kFwd) {
      Fail("epilogue", Concat("must be left out for ", Name(p_.operation_), ": forward only"));
    }
  }

  void CheckIn(DataType type, const std::vector<DataType>& allowed, std::string_view field) {
    if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) return;
    std::string names;
    for (const DataType t : allowed) AppendTo(&names, names.empty() ? "" : " or ", Name(t));
    Fail(field, Concat("must be ", names, " for ", Name(p_.data_type_), ", is ", Name(type)));
  }

  // Fills in the defaults and checks the combination.
  void SetTypes() {
    using enum DataType;
    const DataType data = TypeOf(given_.data_type(), "data_type").value_or(kF32);
    const auto output = TypeOf(given_.output_type(), "output_type");
    const auto compute = TypeOf(given_.compute_type(), "compute_type");
    const auto intermediate = TypeOf(given_.intermediate_type(), "intermediate_type");
    SetEpilogue();
    const TypeRule* const rule = FindRule(data);
    if (rule == nullptr) {
      Fail("data_type", Concat("must be f64, f32, f16, bf16, i8, e4m3 or e5m2, is ", Name(data)));
      return;
    }
    if (data == kI8 && p_.operation_ != Operation::kFwd) {
      Fail("data_type", Concat("i8 must be forward only, operation is ", Name(p_.operation_)));
    }
    const bool has_epilogue = given_.epilogue_size() > 0;
    p_.data_type_ = data;
    p_.output_type_ = output.value_or(DefaultOutput(data, has_epilogue));
    p_.compute_type_ = compute.value_or(rule->computes.front());
    p_.intermediate_type_ = intermediate.value_or(data == kF64 ? kF64 : kF32);
    CheckIn(p_.output_type_, rule->outputs, "output_type");
    CheckIn(p_.compute_type_, rule->computes, "compute_type");
    if (intermediate && !has_epilogue) {
      Fail("intermediate_type", "must be left out without an epilogue");
    } else if (data == kF64) {
      CheckIn(p_.intermediate_type_, {kF64}, "intermediate_type");
    } else if (p_.intermediate_type_ != data) {
      CheckIn(p_.intermediate_type_, {kF32, data}, "intermediate_type");
    }
  }

  // Dimensions, and all that has an entry for each of them.
  void SetDims() {
    const bool dims_ok = SetInputDims();
    const int entries = given_.x_dims_size();
    if (entries < 3 || entries > 5) return;
    bool window_ok = Spread(given_.pad_low(), "pad_low", 0, &p_.pad_low_);
    if (given_.pad_high().empty()) {
      p_.pad_high_ = p_.pad_low_;
    } else {
      window_ok &= Spread(given_.pad_high(), "pad_high", 0, &p_.pad_high_);
    }
    window_ok &= Spread(given_.strides(), "strides", 1, &p_.strides_);
    window_ok &= Spread(given_.dilations(), "dilations", 1, &p_.dilations_);
    if (!dims_ok) return;
    CheckGroups();
    SetStrides(given_.x_strides(), "x_strides", p_.x_dims_, &p_.x_strides_);
    SetStrides(given_.w_strides(), "w_strides", p_.w_dims_, &p_.w_strides_);
    if (window_ok && SetOutputDims()) {
      SetStrides(given_.y_strides(), "y_strides", p_.y_dims_, &p_.y_strides_);
    }
  }

  // Ranks, ranges and element counts of x and w, which then have two spatial dimensions at least.
  bool SetInputDims() {
    const Numbers& x = given_.x_dims();
    const Numbers& w = given_.w_dims();
    bool ok = true;
    if (x.size() < 3 || x.size() > 5) {
      ok = Fail("x_dims", Concat("must have 3 to 5 entries (N, C, spatial), has ", x.size()));
    } else if (w.size() != x.size()) {
      ok = Fail("w_dims",
                Concat("must have as many entries as x_dims (", x.size(), "), has ", w.size()));
    }
    if (x.size() <= 5) ok &= CheckRange(x, "x_dims", 1, kMaxDim, "2^31-1");
    if (w.size() <= 5) ok &= CheckRange(w, "w_dims", 1, kMaxDim, "2^31-1");
    if (!ok) return false;
    p_.x_dims_ = Entries(x, 2, 1);
    p_.w_dims_ = Entries(w, 2, 1);
    constexpr std::string_view kTooMany = "must hold at most 2^48 elements";
    if (ElementCount(p_.x_dims_) > kMaxElements) ok = Fail("x_dims", kTooMany);
    if (ElementCount(p_.w_dims_) > kMaxElements) ok = Fail("w_dims", kTooMany);
    return ok;
  }

  bool is_flat() const { return given_.x_dims_size() == 3; }

  // The values; of a problem with one spatial dimension with `inserted` before the value at
  // `place`.
  std::vector<int64_t> Entries(const Numbers& values, int place, int64_t inserted) const {
    std::vector<int64_t> entries(values.begin(), values.end());
    if (is_flat()) entries.insert(entries.begin() + place, inserted);
    return entries;
  }

  // A value of at least `least` for each spatial dimension: an empty list is `least` throughout,
  // and one value is spread.
  bool Spread(const Numbers& given, std::string_view field, int64_t least,
              std::vector<int64_t>* out) {
    const int rank = given_.x_dims_size() - 2;
    if (given.size() > 1 && given.size() != rank) {
      return Fail(field, Concat("must have 1 entry or one for each of the ", rank,
                                " spatial dimensions, has ", given.size()));
    }
    if (!CheckRange(given, field, least, kMaxDim, "2^31-1")) return false;
    *out = Entries(given, 0, least);
    out->resize(std::max<size_t>(2, static_cast<size_t>(rank)), given.empty() ? least : given[0]);
    return true;
  }

  void CheckGroups() {
    const int64_t groups = p_.groups_;
    const int64_t channels = p_.x_dims_[1];
    const int64_t filters = p_.w_dims_[0];
    if (groups < 1 || groups > kMaxDim) {
      Fail("groups", Concat("must be from 1 to 2^31-1, is ", groups));
      return;
    }
    if (channels % groups != 0) {
      Fail("groups", Concat("must divide the ", channels, " channels of x_dims[1], is ", groups));
    } else if (p_.w_dims_[1] != channels / groups) {
      FailAt("w_dims", 1,
             Concat("must be C/groups = ", channels, "/", groups, " = ", channels / groups, ", is ",
                    p_.w_dims_[1]));
    }
    if (filters % groups != 0) {
      Fail("groups", Concat("must divide the ", filters, " filters of w_dims[0], is ", groups));
    }
  }

  // False if the output vanishes or is too large.
  bool SetOutputDims() {
    p_.y_dims_ = {p_.x_dims_[0], p_.w_dims_[0]};
    bool ok = true;
    for (size_t i = 0; i + 2 < p_.x_dims_.size(); ++i) {
      const int64_t x = p_.x_dims_[i + 2];
      const int64_t w = p_.w_dims_[i + 2];
      const int64_t size =
          OutputSize(x, p_.pad_low_[i], p_.pad_high_[i], w, p_.strides_[i], p_.dilations_[i]);
      // The index in the list as it was given.
      const size_t index = i + 2 - (is_flat() ? 1 : 0);
      if (size < 1) {
        ok = FailAt("x_dims", index,
                    Concat("output vanishes: ", x + p_.pad_low_[i] + p_.pad_high_[i],
                           " elements with padding are fewer than the ",
                           p_.dilations_[i] * (w - 1) + 1, " that the dilated filter spans"));
      } else if (size > kMaxDim) {
        ok = FailAt("x_dims", index, Concat("output must be at most 2^31-1, is ", size));
      }
      p_.y_dims_.push_back(size);
    }
    if (ok && ElementCount(p_.y_dims_) > kMaxElements) {
      ok = Fail("x_dims", "output must hold at most 2^48 elements");
    }
    return ok;
  }

  // Strides of the tensor with these dimensions, which neither overlap nor span too much.
  void SetStrides(const Numbers& given, std::string_view field, const std::vector<int64_t>& dims,
                  std::vector<int64_t>* out) {
    if (!has_strides_) {
      out->resize(dims.size());
      PackedStrides(dims.data(), static_cast<int>(dims.size()),
                    given_.layout() == v1::TENSOR_LAYOUT_NHWC, out->data());
      return;
    }
    if (given.size() != given_.x_dims_size()) {
      Fail(field, Concat("must have one entry for each of the ", given_.x_dims_size(),
                         " dimensions, has ", given.size()));
      return;
    }
    if (!CheckRange(given, field, 1, kMaxElements, "2^48")) return;
    const std::vector<int64_t>& strides = *out = Entries(given, 2, 1);
    std::vector<size_t> order;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] > 1) order.push_back(i);
    }
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return strides[a] < strides[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const size_t inner = order[i - 1];
      if (strides[order[i]] < CappedProduct(strides[inner], dims[inner])) {
        Fail(field, Concat("must not overlap: stride ", strides[order[i]], " is less than ",
                           strides[inner], " times the size ", dims[inner]));
        return;
      }
    }
    if (Extent(dims, strides) > kMaxElements) Fail(field, "must span at most 2^48 elements");
  }

  const v1::ConvProblem& given_;
  const std::string_view prefix_;
  std::vector<Violation>* const violations_;
  const size_t before_;       // violations that were there already
  bool has_strides_ = false;  // of any tensor: then those of all three are required
  ConvProblem p_;
};

namespace {

// A TokenReader reads a text form token by token into a message.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Violation>* violations) : violations_(violations) {}

  void ReadOperation(std::string_view token) {
    if (const std::optional<Operation> operation = ParseOperation(token)) {
      problem_.set_operation(static_cast<v1::Operation>(*operation));
    } else {
      Fail("operation",
           Concat("the first token must be fwd, bwd_data or bwd_filter, is ", Quote(token)));
    }
  }

  void Read(std::string_view token) {
    if (token.empty()) return Fail("text", "must not have an empty token");
    const size_t equals = token.find('=');
    if (equals == std::string_view::npos) return ReadWord(token);
    const std::string_view key = Strip(token.substr(0, equals));
    const std::string_view value = Strip(token.substr(equals + 1));
    if (key.empty()) {
      return Fail("text", Concat("must have a name before each '=', has ", Quote(token)));
    }
    const auto* const field = std::find_if(std::begin(kFields), std::end(kFields),
                                           [key](const auto& f) { return f.first == key; });
    if (field == std::end(kFields)) {
      return Fail(Excerpt(key), Concat("unknown token ", Quote(token)));
    }
    if (!Once(key, key)) return;
    std::visit([&](auto set) { ReadInto(key, value, set); }, field->second);
  }

  v1::ConvProblem Take() { return std::move(problem_); }

 private:
  void Fail(std::string_view field, std::string_view rule) {
    violations_->push_back({std::string(field), std::string(rule)});
  }

  // Says so if a token of this kind was there before.
  bool Once(std::string_view kind, std::string_view field) {
    if (std::find(seen_.begin(), seen_.end(), kind) == seen_.end()) {
      seen_.push_back(kind);
      return true;
    }
    Fail(field, kind == field ? "given twice" : Concat("a second ", kind));
    return false;
  }

  void ReadWord(std::string_view token) {
    if (ParseOperation(token)) {
      Fail("operation", Concat("given twice: ", token));
    } else if (const std::optional<DataType> type = ParseLooseDataType(token)) {
      if (Once("data type", token)) problem_.set_data_type(static_cast<v1::DataType>(*type));
    } else if (token == "nchw" || token == "nhwc") {
      if (!Once("layout", token)) return;
      problem_.set_layout(token == "nchw" ? v1::TENSOR_LAYOUT_NCHW : v1::TENSOR_LAYOUT_NHWC);
    } else {
      Fail(Excerpt(token), "unknown token");
    }
  }

  bool ReadNumber(std::string_view key, std::string_view text, int64_t* value) {
    const absl::Status read = ReadInt64(text, value);
    if (!read.ok()) Fail(key, std::string(read.message()));
    return read.ok();
  }

  // Setters of the message, or what reads a value of a form of its own.
  using ListOf = Numbers* (v1::ConvProblem::*)();
  using Set64 = void (v1::ConvProblem::*)(int64_t);
  using Set32 = void (v1::ConvProblem::*)(int32_t);
  using SetType = void (v1::ConvProblem::*)(v1::DataType);
  using OwnReader = void (TokenReader::*)(std::string_view);

  void ReadInto(std::string_view key, std::string_view value, ListOf list_of) {
    Numbers* const list = (problem_.*list_of)();
    for (const std::string_view part : Split(value, 'x')) {
      int64_t number = 0;
      if (!ReadNumber(key, part, &number)) return;
      list->Add(number);
    }
  }

  template <typename Number>
  void ReadInto(std::string_view key, std::string_view value,
                void (v1::ConvProblem::*set)(Number)) {
    int64_t number = 0;
    if (!ReadNumber(key, value, &number)) return;
    if (!std::in_range<Number>(number)) return Fail(key, Concat("is out of range: ", number));
    // The message has 0 for what is left out.
    if (number == 0 && key != "sms") return Fail(key, "must be at least 1, is 0");
    (problem_.*set)(static_cast<Number>(number));
  }

  void ReadInto(std::string_view key, std::string_view value, SetType set) {
    const std::optional<DataType> type = ParseLooseDataType(value);
    if (!type) return Fail(key, Concat("must be ", kTypeNames, ", is ", Quote(value)));
    (problem_.*set)(static_cast<v1::DataType>(*type));
  }

  void ReadInto(std::string_view /*key*/, std::string_view value, OwnReader read) {
    (this->*read)(value);
  }

  void ReadMode(std::string_view value) {
    if (value != "conv" && value != "xcorr") {
      return Fail("mode", Concat("must be conv or xcorr, is ", Quote(value)));
    }
    problem_.set_mode(value == "conv" ? v1::CONVOLUTION_MODE_CONVOLUTION
                                      : v1::CONVOLUTION_MODE_CROSS_CORRELATION);
  }

  void ReadEpilogue(std::string_view value) {
    for (const std::string_view part : Split(value, '+')) {
      const std::optional<EpilogueOp> op = ParseEpilogueOp(part);
      if (!op) {
        return Fail("epilogue",
                    Concat("must be of add, bias and relu joined by +, has ", Quote(part)));
      }
      problem_.add_epilogue(static_cast<v1::EpilogueOp>(*op));
    }
  }

  void ReadPad(std::string_view value) {
    const bool asymmetric = value.find(':') != std::string_view::npos;
    for (const std::string_view part : Split(value, 'x')) {
      const size_t colon = part.find(':');
      const bool two = colon != std::string_view::npos;
      int64_t low = 0;
      int64_t high = 0;
      if (!ReadNumber("pad", part.substr(0, colon), &low)) return;
      if (!ReadNumber("pad", two ? part.substr(colon + 1) : part, &high)) return;
      problem_.add_pad_low(low);
      if (asymmetric) problem_.add_pad_high(high);
    }
  }

  static constexpr std::pair<std::string_view,
                             std::variant<ListOf, Set64, Set32, SetType, OwnReader>>
      kFields[] = {
          {"x", &v1::ConvProblem::mutable_x_dims},
          {"w", &v1::ConvProblem::mutable_w_dims},
          {"pad", &TokenReader::ReadPad},
          {"stride", &v1::ConvProblem::mutable_strides},
          {"dilation", &v1::ConvProblem::mutable_dilations},
          {"groups", &v1::ConvProblem::set_groups},
          {"xstrides", &v1::ConvProblem::mutable_x_strides},
          {"wstrides", &v1::ConvProblem::mutable_w_strides},
          {"ystrides", &v1::ConvProblem::mutable_y_strides},
          {"out", &v1::ConvProblem::set_output_type},
          {"acc", &v1::ConvProblem::set_compute_type},
          {"mid", &v1::ConvProblem::set_intermediate_type},
          {"mode", &TokenReader::ReadMode},
          {"epilogue", &TokenReader::ReadEpilogue},
          {"align", &v1::ConvProblem::set_alignment_bytes},
          {"sms", &v1::ConvProblem::set_sm_count_target},
  };

  std::vector<Violation>* violations_;
  v1::ConvProblem problem_;
  std::vector<std::string_view> seen_;  // names within the text, or literals
};

}  // namespace

std::optional<ConvProblem> ConvProblem::Create(const v1::ConvProblem& given,
                                               std::vector<Violation>* violations,
                                               std::string_view prefix) {
  return Builder(given, prefix, violations).Build();
}

std::optional<ConvProblem> ConvProblem::Create(const v1::ProblemSpec& given,
                                               std::vector<Violation>* violations,
                                               std::string_view prefix) {
  const auto below = [prefix](std::string_view field) {
    return Concat(prefix, prefix.empty() ? "" : ".", field);
  };
  if (given.has_problem()) return Create(given.problem(), violations, below("problem"));
  if (!given.has_text()) {
    violations->push_back({prefix.empty() ? "problem" : std::string(prefix),
                           "required: problem or text must be set"});
    return std::nullopt;
  }
  std::vector<Violation> broken;
  std::optional<ConvProblem> problem = Parse(given.text(), &broken);
  for (const Violation& violation : broken) {
    violations->push_back(
        {below("text"), violation.field == "text" ? violation.rule : ToString({violation})});
  }
  return problem;
}

absl::StatusOr<ConvProblem> ConvProblem::Create(const v1::ConvProblem& given) {
  std::vector<Violation> violations;
  return OrError(Create(given, &violations), violations);
}

std::optional<ConvProblem> ConvProblem::Parse(std::string_view text,
                                              std::vector<Violation>* violations) {
  const size_t before = violations->size();
  const v1::ConvProblem given = ParseProblemTokens(text, violations);
  if (violations->size() != before) return std::nullopt;
  return Create(given, violations);
}

absl::StatusOr<ConvProblem> ConvProblem::Parse(std::string_view text) {
  std::vector<Violation> violations;
  return OrError(Parse(text, &violations), violations);
}

int64_t ElementCount(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, CappedProduct);
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
  const int64_t x = Extent(x_dims_, x_strides_);
  const int64_t w = Extent(w_dims_, w_strides_);
  const int64_t y = Extent(y_dims_, y_strides_);
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

double EstimatedFlops(const ConvProblem& problem) {
  double outputs = 1;
  for (const int64_t dim : problem.y_dims()) outputs *= static_cast<double>(dim);
  return 2 * outputs * static_cast<double>(Product(problem.w_dims(), 1));
}

v1::ConvProblem ParseProblemTokens(std::string_view text, std::vector<Violation>* violations) {
  const auto refuse = [&](std::string_view rule) {
    violations->push_back({"text", std::string(rule)});
    return v1::ConvProblem();
  };
  if (text.size() > kMaxTextBytes) {
    return refuse(Concat("must be at most ", kMaxTextBytes, " bytes, has ", text.size()));
  }
  text = Strip(text);
  if (text.empty()) return refuse("must not be empty");
  if (!IsValidUtf8(text)) return refuse(Concat("must be valid UTF-8, is ", Quote(text)));
  if (HasControlCharacter(text)) {
    return refuse(Concat("must not have control characters, is ", Quote(text)));
  }
  TokenReader reader(violations);
  const std::vector<std::string_view> tokens = Split(text, ',');
  reader.ReadOperation(Strip(tokens[0]));
  for (size_t i = 1; i < tokens.size(); ++i) reader.Read(Strip(tokens[i]));
  return reader.Take();
}

std::string ConvProblem::ToText() const {
  std::string text = Concat(Name(operation_), ",x=", Joined(x_dims_), ",w=", Joined(w_dims_));
  if (symmetric_padding()) {
    AppendTo(&text, ",pad=", Joined(pad_low_));
  } else {
    for (size_t i = 0; i < pad_low_.size(); ++i) {
      AppendTo(&text, i == 0 ? ",pad=" : "x", pad_low_[i], ":", pad_high_[i]);
    }
  }
  AppendTo(&text, ",stride=", Joined(strides_), ",dilation=", Joined(dilations_),
           ",groups=", groups_);
  if (layout_ == TensorLayout::kStrided) {
    AppendTo(&text, ",xstrides=", Joined(x_strides_), ",wstrides=", Joined(w_strides_),
             ",ystrides=", Joined(y_strides_));
  } else {
    AppendTo(&text, ",", Name(layout_));
  }
  AppendTo(&text, ",", Name(data_type_));
  if (output_type_ != DefaultOutput(data_type_, !epilogue_.empty())) {
    AppendTo(&text, ",out=", Name(output_type_));
  }
  AppendTo(&text, ",acc=", Name(compute_type_));
  if (!epilogue_.empty()) AppendTo(&text, ",mid=", Name(intermediate_type_));
  if (mode_ == ConvolutionMode::kConvolution) AppendTo(&text, ",mode=conv");
  for (size_t i = 0; i < epilogue_.size(); ++i) {
    AppendTo(&text, i == 0 ? ",epilogue=" : "+", Name(epilogue_[i]));
  }
  if (alignment_bytes_ != kDefaultAlignmentBytes) {
    AppendTo(&text, ",align=", alignment_bytes_);
  }
  if (sm_count_target_ != 0) AppendTo(&text, ",sms=", sm_count_target_);
  return text;
}

v1::ConvProblem ConvProblem::ToProto() const {
  v1::ConvProblem proto;
  const auto copy = [](const std::vector<int64_t>& from, Numbers* to) {
    to->Add(from.begin(), from.end());
  };
  proto.set_operation(static_cast<v1::Operation>(operation_));
  copy(x_dims_, proto.mutable_x_dims());
  copy(w_dims_, proto.mutable_w_dims());
  copy(pad_low_, proto.mutable_pad_low());
  copy(pad_high_, proto.mutable_pad_high());
  copy(strides_, proto.mutable_strides());
  copy(dilations_, proto.mutable_dilations());
  proto.set_groups(groups_);
  proto.set_data_type(static_cast<v1::DataType>(data_type_));
  proto.set_output_type(static_cast<v1::DataType>(output_type_));
  proto.set_compute_type(static_cast<v1::DataType>(compute_type_));
  if (!epilogue_.empty()) {
    proto.set_intermediate_type(static_cast<v1::DataType>(intermediate_type_));
  }
  proto.set_layout(static_cast<v1::TensorLayout>(layout_));
  if (layout_ == TensorLayout::kStrided) {
    copy(x_strides_, proto.mutable_x_strides());
    copy(w_strides_, proto.mutable_w_strides());
    copy(y_strides_, proto.mutable_y_strides());
  }
  proto.set_mode(static_cast<v1::ConvolutionMode>(mode_));
  for (const EpilogueOp op : epilogue_) proto.add_epilogue(static_cast<v1::EpilogueOp>(op));
  proto.set_alignment_bytes(alignment_bytes_);
  proto.set_sm_count_target(sm_count_target_);
  return proto;
}

}  // namespace convtune
