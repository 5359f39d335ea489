// FieldRules hold the rules that fields of several messages share, whoever reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "proto/model/violation.h"

namespace convtune {

// Collects the violations of one message. `field` is always the path that a
// violation is to name. Not thread-safe.
class FieldRules {
 public:
  // `violations` outlives the rules; what it holds already is left alone.
  explicit FieldRules(std::vector<Violation>* violations)
      : violations_(violations), size_before_(violations->size()) {}

  // True if nothing was added since.
  bool ok() const { return violations_->size() == size_before_; }
  // INVALID_ARGUMENT with the first violation that was added since.
  absl::Status First() const {
    return ok() ? absl::OkStatus() : ViolationError((*violations_)[size_before_]);
  }

  void Add(std::string_view field, std::string rule);
  void Require(bool holds, std::string_view field, std::string_view rule) {
    if (!holds) Add(field, std::string(rule));
  }
  void Range(std::string_view field, int64_t value, int64_t low, int64_t high);
  // In Unicode code points. With `low` above 0 an empty value is missing.
  void Length(std::string_view field, std::string_view value, size_t low, size_t high);
  void NoControls(std::string_view field, std::string_view value);
  template <typename Enum>
  void KnownEnum(std::string_view field, Enum value) {
    CheckEnum(field, *google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
  }
  // Sets `*out` to the model's value of that number, unless it is UNSPECIFIED.
  template <typename Model, typename Proto, typename Out>
  void Enum(std::string_view field, Proto value, Out* out) {
    KnownEnum(field, value);
    if (static_cast<int>(value) != 0) *out = static_cast<Model>(value);
  }
  // Check who made a decision, and why.
  void Author(std::string_view field, std::string_view author);
  void Reason(std::string_view field, std::string_view reason);
  // Sets `*value` to what `parse` reads in `text`, which has `least` to 1,024 characters.
  template <typename Value>
  void Parsed(std::string_view field, absl::StatusOr<Value> (*parse)(std::string_view),
              const std::string& text, size_t least, Value* value) {
    constexpr size_t kMost = 1024;
    const size_t before = violations_->size();
    Length(field, text, least, kMost);
    if (violations_->size() != before) return;
    absl::StatusOr<Value> parsed = parse(text);
    if (parsed.ok()) {
      *value = *std::move(parsed);
    } else {
      Add(field, std::string(parsed.status().message()));
    }
  }

 protected:
  std::vector<Violation>* violations_;

 private:
  void CheckEnum(std::string_view field, const google::protobuf::EnumDescriptor& descriptor,
                 int value);

  size_t size_before_;
};

}  // namespace convtune
