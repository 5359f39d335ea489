#include "proto/model/problem/conv_problem.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "proto/base/strings.h"
#include "proto/model/problem/tensor_rules.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

void Add(std::vector<Violation>* violations, std::string_view field, std::string_view rule) {
  violations->push_back({std::string(field), std::string(rule)});
}

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

std::string Indexed(std::string_view field, size_t index) { return Concat(field, "[", index, "]"); }

bool CheckRange(const std::vector<int64_t>& values, std::string_view field, int64_t min,
                int64_t max, std::string_view max_text, std::vector<Violation>* violations) {
  bool ok = true;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= min && values[i] <= max) continue;
    Add(violations, Indexed(field, i),
        Concat("must be from ", min, " to ", max_text, ", is ", values[i]));
    ok = false;
  }
  return ok;
}

bool CheckElementCount(const std::vector<int64_t>& dims, std::string_view field,
                       std::vector<Violation>* violations) {
  if (ElementCount(dims) <= kMaxElements) return true;
  Add(violations, field, "must hold at most 2^48 elements");
  return false;
}

// Ranks, ranges and element counts of x and w. Where it holds, both lists have
// at least two spatial dimensions afterwards.
bool CheckDims(std::vector<int64_t>* x_dims, std::vector<int64_t>* w_dims,
               std::vector<Violation>* violations) {
  bool ok = true;
  if (x_dims->size() < 3 || x_dims->size() > 5) {
    Add(violations, "x_dims",
        Concat("must have 3 to 5 entries (N, C, spatial), has ", x_dims->size()));
    ok = false;
  }
  if (ok && w_dims->size() != x_dims->size()) {
    Add(violations, "w_dims",
        Concat("must have as many entries as x_dims (", x_dims->size(), "), has ", w_dims->size()));
    ok = false;
  } else if (!ok && (w_dims->size() < 3 || w_dims->size() > 5)) {
    Add(violations, "w_dims",
        Concat("must have 3 to 5 entries (K, C/groups, spatial), has ", w_dims->size()));
  }
  if (x_dims->size() <= 5) ok &= CheckRange(*x_dims, "x_dims", 1, kMaxDim, "2^31-1", violations);
  if (w_dims->size() <= 5) ok &= CheckRange(*w_dims, "w_dims", 1, kMaxDim, "2^31-1", violations);
  if (!ok) return false;
  ok &= CheckElementCount(*x_dims, "x_dims", violations);
  ok &= CheckElementCount(*w_dims, "w_dims", violations);
  if (x_dims->size() == 3) {
    x_dims->insert(x_dims->begin() + 2, 1);
    w_dims->insert(w_dims->begin() + 2, 1);
  }
  return ok;
}

// A list of one value for each spatial dimension: empty is `absent`, one value
// is spread, each value is at least `min`. `typed_rank` is the spatial rank
// that the caller typed; 1 gives {absent, value}.
bool SpreadSpatial(std::vector<int64_t>* values, std::string_view field, int typed_rank,
                   int64_t absent, int64_t min, std::vector<Violation>* violations) {
  const auto rank = static_cast<size_t>(typed_rank);
  if (values->size() > 1 && values->size() != rank) {
    Add(violations, field,
        Concat("must have 1 entry or one for each of the ", rank, " spatial dimensions, has ",
               values->size()));
    return false;
  }
  if (!CheckRange(*values, field, min, kMaxDim, "2^31-1", violations)) return false;
  if (values->empty()) values->push_back(absent);
  if (values->size() == 1) values->resize(rank, values->front());
  if (rank == 1) values->insert(values->begin(), absent);
  return true;
}

void CheckGroups(int64_t groups, const std::vector<int64_t>& x_dims,
                 const std::vector<int64_t>& w_dims, std::vector<Violation>* violations) {
  if (groups < 1 || groups > kMaxDim) {
    return Add(violations, "groups", Concat("must be from 1 to 2^31-1, is ", groups));
  }
  if (x_dims[1] % groups != 0) {
    Add(violations, "groups",
        Concat("must divide the ", x_dims[1], " channels of x_dims[1], is ", groups));
  } else if (w_dims[1] != x_dims[1] / groups) {
    Add(violations, "w_dims[1]",
        Concat("must be C/groups = ", x_dims[1], "/", groups, " = ", x_dims[1] / groups, ", is ",
               w_dims[1]));
  }
  if (w_dims[0] % groups != 0) {
    Add(violations, "groups",
        Concat("must divide the ", w_dims[0], " filters of w_dims[0], is ", groups));
  }
}

// N, K, spatial; empty if the output vanishes or is too large.
std::vector<int64_t> OutputDims(const std::vector<int64_t>& x_dims,
                                const std::vector<int64_t>& w_dims,
                                const std::vector<int64_t>& pad_low,
                                const std::vector<int64_t>& pad_high,
                                const std::vector<int64_t>& strides,
                                const std::vector<int64_t>& dilations, int typed_rank,
                                std::vector<Violation>* violations) {
  std::vector<int64_t> y_dims = {x_dims[0], w_dims[0]};
  // Indexes in messages are those of the list that the caller typed.
  const size_t inserted = typed_rank == 1 ? 1 : 0;
  bool ok = true;
  for (size_t i = 0; i + 2 < x_dims.size(); ++i) {
    const int64_t padded = x_dims[i + 2] + pad_low[i] + pad_high[i];
    const int64_t filter = dilations[i] * (w_dims[i + 2] - 1) + 1;
    const int64_t size =
        OutputSize(x_dims[i + 2], pad_low[i], pad_high[i], w_dims[i + 2], strides[i], dilations[i]);
    if (size < 1) {
      Add(violations, Indexed("x_dims", i + 2 - inserted),
          Concat("output vanishes: ", padded, " elements with padding are fewer than the ", filter,
                 " that the dilated filter spans"));
      ok = false;
    } else if (size > kMaxDim) {
      Add(violations, Indexed("x_dims", i + 2 - inserted),
          Concat("output must be at most 2^31-1, is ", size));
      ok = false;
    }
    y_dims.push_back(size);
  }
  if (ok && ElementCount(y_dims) > kMaxElements) {
    Add(violations, "x_dims", "output must hold at most 2^48 elements");
    ok = false;
  }
  if (!ok) y_dims.clear();
  return y_dims;
}

// Explicit strides of one tensor whose canonical dimensions are `dims`. Where
// it holds, the list has an entry for each of them.
void CheckStrides(std::vector<int64_t>* strides, std::string_view field,
                  const std::vector<int64_t>& dims, int typed_rank,
                  std::vector<Violation>* violations) {
  const auto typed = static_cast<size_t>(typed_rank) + 2;
  if (strides->size() != typed) {
    return Add(violations, field,
               Concat("must have one entry for each of the ", typed, " dimensions, has ",
                      strides->size()));
  }
  if (!CheckRange(*strides, field, 1, kMaxElements, "2^48", violations)) return;
  if (typed_rank == 1) strides->insert(strides->begin() + 2, 1);

  std::vector<size_t> order;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return (*strides)[a] < (*strides)[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t inner = order[i - 1];
    if ((*strides)[order[i]] < CappedProduct((*strides)[inner], dims[inner])) {
      return Add(violations, field,
                 Concat("must not overlap: stride ", (*strides)[order[i]], " is less than ",
                        (*strides)[inner], " times the size ", dims[inner]));
    }
  }
  if (Extent(dims, *strides) > kMaxElements) {
    Add(violations, field, "must span at most 2^48 elements");
  }
}

// Strides of a packed tensor; `layout` is kNchw or kNhwc.
std::vector<int64_t> PackedStrides(const std::vector<int64_t>& dims, TensorLayout layout) {
  std::vector<int64_t> strides(dims.size());
  convtune::PackedStrides(dims.data(), static_cast<int>(dims.size()), layout == TensorLayout::kNhwc,
                          strides.data());
  return strides;
}

struct Types {
  DataType data;
  DataType output;
  DataType compute;
  DataType intermediate;
};

// What cuDNN's convolutions take; the first of a list is the default.
struct TypeRule {
  DataType data;
  std::vector<DataType> outputs;
  std::vector<DataType> computes;
};

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

void CheckIn(DataType type, const std::vector<DataType>& allowed, std::string_view field,
             DataType data, std::vector<Violation>* violations) {
  if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) return;
  std::string names;
  for (const DataType t : allowed) AppendTo(&names, names.empty() ? "" : " or ", Name(t));
  Add(violations, field, Concat("must be ", names, " for ", Name(data), ", is ", Name(type)));
}

void CheckEpilogue(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  using enum EpilogueOp;
  if (spec.epilogue.empty()) return;
  const std::vector<EpilogueOp> forms[] = {{kBias}, {kBias, kRelu}, {kAdd, kBias, kRelu}};
  if (std::find(std::begin(forms), std::end(forms), spec.epilogue) == std::end(forms)) {
    Add(violations, "epilogue", "must be bias, bias+relu or add+bias+relu");
  }
  if (spec.operation && *spec.operation != Operation::kFwd) {
    Add(violations, "epilogue",
        Concat("must be left out for ", Name(*spec.operation), ": forward only"));
  }
}

// Fills in the defaults and checks the combination, the epilogue's form included.
std::optional<Types> ResolveTypes(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  using enum DataType;
  const size_t before = violations->size();
  CheckEpilogue(spec, violations);
  const bool epilogue = !spec.epilogue.empty();
  const DataType data = spec.data_type.value_or(kF32);
  const TypeRule* const rule = FindRule(data);
  if (rule == nullptr) {
    Add(violations, "data_type",
        Concat("must be f64, f32, f16, bf16, i8, e4m3 or e5m2, is ", Name(data)));
    return std::nullopt;
  }
  if (data == kI8 && spec.operation && *spec.operation != Operation::kFwd) {
    Add(violations, "data_type",
        Concat("i8 must be forward only, operation is ", Name(*spec.operation)));
  }

  Types types;
  types.data = data;
  types.output = spec.output_type.value_or(data == kI8 && epilogue ? kI8 : rule->outputs.front());
  types.compute = spec.compute_type.value_or(rule->computes.front());
  types.intermediate = spec.intermediate_type.value_or(data == kF64 ? kF64 : kF32);
  CheckIn(types.output, rule->outputs, "output_type", data, violations);
  CheckIn(types.compute, rule->computes, "compute_type", data, violations);
  if (spec.intermediate_type && !epilogue) {
    Add(violations, "intermediate_type", "must be left out without an epilogue");
  } else if (data == kF64) {
    CheckIn(types.intermediate, {kF64}, "intermediate_type", data, violations);
  } else if (types.intermediate != data) {
    CheckIn(types.intermediate, {kF32, data}, "intermediate_type", data, violations);
  }
  return violations->size() == before ? std::optional(types) : std::nullopt;
}

void CheckLayout(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  const bool x = !spec.x_strides.empty();
  const bool w = !spec.w_strides.empty();
  const bool y = !spec.y_strides.empty();
  if (x || w || y) {
    constexpr std::string_view kAllOrNone =
        "required: x_strides, w_strides and y_strides go together";
    if (!x) Add(violations, "x_strides", kAllOrNone);
    if (!w) Add(violations, "w_strides", kAllOrNone);
    if (!y) Add(violations, "y_strides", kAllOrNone);
    if (spec.layout && *spec.layout != TensorLayout::kStrided) {
      Add(violations, "layout", Concat("must be left out with strides, is ", Name(*spec.layout)));
    }
  } else if (spec.layout == TensorLayout::kStrided) {
    Add(violations, "layout", "strided needs x_strides, w_strides and y_strides");
  }
}

void CheckScalars(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  if (!spec.operation) {
    Add(violations, "operation", "required: fwd, bwd_data or bwd_filter");
  }
  const int64_t alignment = spec.alignment_bytes.value_or(kDefaultAlignmentBytes);
  if (alignment < 1 || alignment > 256 || (alignment & (alignment - 1)) != 0) {
    Add(violations, "alignment_bytes",
        Concat("must be a power of two from 1 to 256, is ", alignment));
  }
  const int64_t sms = spec.sm_count_target.value_or(0);
  if (sms < 0 || sms > 1024) {
    Add(violations, "sm_count_target", Concat("must be from 0 to 1024, is ", sms));
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

// Why a token that names a vectorised INT8 type or layout is refused; nullopt for other tokens.
std::optional<std::string_view> VectorizedInt8Reason(std::string_view token) {
  const std::string name = LowerCase(token);
  for (const std::string_view known :
       {"i8x4", "i8x32", "int8x4", "int8x32", "uint8x4", "u8x4", "nchw_vect_c", "nc4hw4",
        "nc32hw32", "nc4hw", "nc32hw", "nchw4", "nchw32"}) {
    if (name != known) continue;
    return "vectorised INT8x4 and INT8x32 layouts are not supported: cuDNN deprecated them; use "
           "i8 with nhwc";
  }
  return std::nullopt;
}

constexpr size_t kMaxTextBytes = 4096;
constexpr std::string_view kTypeNames = "f64, f32, f16, bf16, i8, i32, e4m3 or e5m2";

// The fields of a spec by the names of their tokens; "pad" sets two.
template <typename T>
using Member = T ConvProblemSpec::*;
using Field = std::variant<Member<std::vector<int64_t>>, Member<std::optional<int64_t>>,
                           Member<std::optional<DataType>>, Member<std::optional<ConvolutionMode>>,
                           Member<std::vector<EpilogueOp>>>;
constexpr std::pair<std::string_view, Field> kFields[] = {
    {"x", &ConvProblemSpec::x_dims},
    {"w", &ConvProblemSpec::w_dims},
    {"stride", &ConvProblemSpec::strides},
    {"dilation", &ConvProblemSpec::dilations},
    {"groups", &ConvProblemSpec::groups},
    {"xstrides", &ConvProblemSpec::x_strides},
    {"wstrides", &ConvProblemSpec::w_strides},
    {"ystrides", &ConvProblemSpec::y_strides},
    {"out", &ConvProblemSpec::output_type},
    {"acc", &ConvProblemSpec::compute_type},
    {"mid", &ConvProblemSpec::intermediate_type},
    {"mode", &ConvProblemSpec::mode},
    {"epilogue", &ConvProblemSpec::epilogue},
    {"align", &ConvProblemSpec::alignment_bytes},
    {"sms", &ConvProblemSpec::sm_count_target},
};

// Reads token by token into a spec.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Violation>* violations) : violations_(violations) {}

  void ReadOperation(std::string_view token) {
    spec_.operation = ParseOperation(token);
    if (!spec_.operation) {
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
    ReadPair(key, value, token);
  }

  ConvProblemSpec Take() { return std::move(spec_); }

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
      return Fail("operation", Concat("given twice: ", token));
    }
    if (const std::optional<DataType> type = ParseLooseDataType(token)) {
      if (Once("data type", token)) spec_.data_type = type;
    } else if (token == "nchw" || token == "nhwc") {
      if (!Once("layout", token)) return;
      spec_.layout = token == "nchw" ? TensorLayout::kNchw : TensorLayout::kNhwc;
    } else if (const auto reason = VectorizedInt8Reason(token)) {
      Fail(Excerpt(token), *reason);
    } else {
      Fail(Excerpt(token), "unknown token");
    }
  }

  void ReadPair(std::string_view key, std::string_view value, std::string_view token) {
    if (key.empty()) {
      return Fail("text", Concat("must have a name before each '=', has ", Quote(token)));
    }
    const auto* const field = std::find_if(std::begin(kFields), std::end(kFields),
                                           [key](const auto& f) { return f.first == key; });
    if (field == std::end(kFields) && key != "pad") {
      return Fail(Excerpt(key), Concat("unknown token ", Quote(token)));
    }
    if (!Once(key, key)) return;
    if (key == "pad") return ReadPad(value);
    std::visit([&](auto member) { ReadInto(key, value, &(spec_.*member)); }, field->second);
  }

  bool ReadNumber(std::string_view key, std::string_view text, int64_t* value) {
    const absl::Status read = ReadInt64(text, value);
    if (!read.ok()) Fail(key, std::string(read.message()));
    return read.ok();
  }

  void ReadInto(std::string_view key, std::string_view value, std::optional<int64_t>* number) {
    if (!ReadNumber(key, value, &number->emplace())) number->reset();
  }

  void ReadInto(std::string_view key, std::string_view value, std::vector<int64_t>* list) {
    const std::vector<std::string_view> parts = Split(value, 'x');
    list->reserve(parts.size());
    for (const std::string_view part : parts) {
      if (!ReadNumber(key, part, &list->emplace_back())) return;
    }
  }

  void ReadInto(std::string_view key, std::string_view value, std::optional<DataType>* type) {
    *type = ParseLooseDataType(value);
    if (!*type) Fail(key, Concat("must be ", kTypeNames, ", is ", Quote(value)));
  }

  void ReadInto(std::string_view key, std::string_view value,
                std::optional<ConvolutionMode>* mode) {
    if (value == "conv") {
      *mode = ConvolutionMode::kConvolution;
    } else if (value == "xcorr") {
      *mode = ConvolutionMode::kCrossCorrelation;
    } else {
      Fail(key, Concat("must be conv or xcorr, is ", Quote(value)));
    }
  }

  void ReadInto(std::string_view key, std::string_view value, std::vector<EpilogueOp>* epilogue) {
    for (const std::string_view part : Split(value, '+')) {
      const std::optional<EpilogueOp> op = ParseEpilogueOp(part);
      if (!op) {
        return Fail(key, Concat("must be of add, bias and relu joined by +, has ", Quote(part)));
      }
      epilogue->push_back(*op);
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
      spec_.pad_low.push_back(low);
      if (asymmetric) spec_.pad_high.push_back(high);
    }
  }

  std::vector<Violation>* violations_;
  ConvProblemSpec spec_;
  std::vector<std::string_view> seen_;  // names within the text, or literals
};

std::string Joined(const std::vector<int64_t>& values) { return absl::StrJoin(values, "x"); }

}  // namespace

std::optional<ConvProblem> ConvProblem::Create(ConvProblemSpec spec,
                                               std::vector<Violation>* violations) {
  const size_t before = violations->size();
  CheckScalars(spec, violations);
  CheckLayout(spec, violations);
  const std::optional<Types> types = ResolveTypes(spec, violations);

  ConvProblem p;
  const size_t typed_entries = spec.x_dims.size();
  p.x_dims_ = std::move(spec.x_dims);
  p.w_dims_ = std::move(spec.w_dims);
  const bool dims_ok = CheckDims(&p.x_dims_, &p.w_dims_, violations);
  const bool rank_ok = typed_entries >= 3 && typed_entries <= 5;
  const int typed_rank = rank_ok ? static_cast<int>(typed_entries) - 2 : 0;
  if (rank_ok) {
    p.pad_low_ = std::move(spec.pad_low);
    p.pad_high_ = std::move(spec.pad_high);
    p.strides_ = std::move(spec.strides);
    p.dilations_ = std::move(spec.dilations);
    bool window_ok = SpreadSpatial(&p.pad_low_, "pad_low", typed_rank, 0, 0, violations);
    if (p.pad_high_.empty()) {
      p.pad_high_ = p.pad_low_;
    } else {
      window_ok &= SpreadSpatial(&p.pad_high_, "pad_high", typed_rank, 0, 0, violations);
    }
    window_ok &= SpreadSpatial(&p.strides_, "strides", typed_rank, 1, 1, violations);
    window_ok &= SpreadSpatial(&p.dilations_, "dilations", typed_rank, 1, 1, violations);
    p.groups_ = spec.groups.value_or(1);
    if (dims_ok) CheckGroups(p.groups_, p.x_dims_, p.w_dims_, violations);
    if (dims_ok && window_ok) {
      p.y_dims_ = OutputDims(p.x_dims_, p.w_dims_, p.pad_low_, p.pad_high_, p.strides_,
                             p.dilations_, typed_rank, violations);
    }
  }

  if (!spec.x_strides.empty() && !spec.w_strides.empty() && !spec.y_strides.empty()) {
    p.x_strides_ = std::move(spec.x_strides);
    p.w_strides_ = std::move(spec.w_strides);
    p.y_strides_ = std::move(spec.y_strides);
    if (dims_ok) {
      CheckStrides(&p.x_strides_, "x_strides", p.x_dims_, typed_rank, violations);
      CheckStrides(&p.w_strides_, "w_strides", p.w_dims_, typed_rank, violations);
    }
    if (!p.y_dims_.empty()) {
      CheckStrides(&p.y_strides_, "y_strides", p.y_dims_, typed_rank, violations);
    }
  } else if (violations->size() == before) {
    const TensorLayout layout = spec.layout.value_or(TensorLayout::kNchw);
    p.x_strides_ = PackedStrides(p.x_dims_, layout);
    p.w_strides_ = PackedStrides(p.w_dims_, layout);
    p.y_strides_ = PackedStrides(p.y_dims_, layout);
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

double MultiplyAdds(const ConvProblem& problem) {
  // The same for each operation.
  double count = 1;
  for (const int64_t dim : problem.y_dims()) count *= static_cast<double>(dim);
  return count * static_cast<double>(Product(problem.w_dims(), 1));
}

ConvProblemSpec ParseProblemTokens(std::string_view text, std::vector<Violation>* violations) {
  const auto refuse = [&](std::string_view rule) {
    violations->push_back({"text", std::string(rule)});
    return ConvProblemSpec();
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
  bool first = true;
  for (const std::string_view token : Split(text, ',')) {
    const std::string_view trimmed = Strip(token);
    if (first) {
      reader.ReadOperation(trimmed);
    } else {
      reader.Read(trimmed);
    }
    first = false;
  }
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
  const DataType default_output = data_type_ != DataType::kI8 ? data_type_
                                  : epilogue_.empty()         ? DataType::kI32
                                                              : DataType::kI8;
  if (output_type_ != default_output) AppendTo(&text, ",out=", Name(output_type_));
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

}  // namespace convtune
