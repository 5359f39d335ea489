#include "proto/model/problem/conv_problem.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_join.h"
#include "proto/base/strings.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

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
