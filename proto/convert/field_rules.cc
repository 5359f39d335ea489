#include "proto/convert/field_rules.h"

#include <algorithm>

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

}  // namespace convtune
