#include "proto/convert/field_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "google/protobuf/descriptor.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

constexpr size_t kMostReason = 500;
constexpr size_t kMostAuthor = 128;

}  // namespace

void FieldRules::Add(std::string_view field, std::string rule) {
  violations_->push_back({std::string(field), std::move(rule)});
}

void FieldRules::Require(bool holds, std::string_view field, std::string_view rule) {
  if (!holds) Add(field, std::string(rule));
}

void FieldRules::Range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    Add(field, Concat("must be ", low, " to ", high, ", is ", value));
  }
}

void FieldRules::Length(std::string_view field, std::string_view value, size_t low, size_t high) {
  const auto count = static_cast<size_t>(std::count_if(value.begin(), value.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
  if (low > 0 && count == 0) {
    Add(field, "is required");
  } else if (count < low || count > high) {
    Add(field, Concat("must have ", low, " to ", high, " characters, has ", count));
  }
}

void FieldRules::NoControls(std::string_view field, std::string_view value) {
  const bool found = std::any_of(value.begin(), value.end(),
                                 [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  Require(!found, field, "must not hold control characters");
}

void FieldRules::CheckEnum(std::string_view field,
                           const google::protobuf::EnumDescriptor& descriptor, int value) {
  if (descriptor.FindValueByNumber(value) == nullptr) {
    Add(field, Concat("must be a number of ", descriptor.full_name(), ", is ", value));
  }
}

void FieldRules::Author(std::string_view field, std::string_view author) {
  Length(field, author, 1, kMostAuthor);
  NoControls(field, author);
}

void FieldRules::Reason(std::string_view field, std::string_view reason) {
  Length(field, reason, 1, kMostReason);
  NoControls(field, reason);
}

Constraints ReadConstraints(const v1::Constraints& in, FieldRules* rules) {
  Constraints out;
  if (in.has_max_workspace_bytes()) {
    rules->Range("constraints.max_workspace_bytes", in.max_workspace_bytes(), 0,
                 std::numeric_limits<int64_t>::max());
    out.max_workspace_bytes = in.max_workspace_bytes();
  }
  out.deterministic = in.deterministic();
  out.forbid_tf32 = in.forbid_tf32();
  out.forbid_down_convert = in.forbid_down_convert();
  out.forbid_winograd = in.forbid_winograd();
  out.forbid_fft = in.forbid_fft();
  out.forbid_reduced_precision_reduction = in.forbid_reduced_precision_reduction();
  rules->Enum<Api>("constraints.api", in.api(), &out.api);
  rules->Enum<LaunchMode>("constraints.launch", in.launch(), &out.launch);
  if (in.has_max_error()) {
    rules->Require(std::isfinite(in.max_error()) && in.max_error() >= 0, "constraints.max_error",
                   "must be a finite number of at least 0");
    out.max_error = in.max_error();
  }
  rules->Enum<CacheState>("constraints.cache_state", in.cache_state(), &out.cache_state);
  return out;
}

}  // namespace convtune
