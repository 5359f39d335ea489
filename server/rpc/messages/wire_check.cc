#include "server/rpc/messages/wire_check.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/model/text.h"

namespace convtune::rpc::messages {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

constexpr size_t kMaxViolations = 100;

// Our messages do not nest into themselves, so the depth is bounded by `type`.
void Walk(const Descriptor& type, const UnknownFieldSet& fields, const std::string& prefix,
          std::vector<Violation>* violations) {
  std::map<int, int> seen;
  for (int i = 0; i < fields.field_count() && violations->size() < kMaxViolations; ++i) {
    const UnknownField& field = fields.field(i);
    const FieldDescriptor* descriptor = type.FindFieldByNumber(field.number());
    const int index = seen[field.number()]++;
    if (descriptor == nullptr || field.type() != UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    std::string path = absl::StrCat(prefix, descriptor->name());
    if (descriptor->is_repeated()) {
      absl::StrAppend(&path, "[", index, "]");
    }
    if (descriptor->type() == FieldDescriptor::TYPE_STRING &&
        !IsValidUtf8(field.length_delimited())) {
      violations->push_back({std::move(path), "must be valid UTF-8"});
    } else if (descriptor->type() == FieldDescriptor::TYPE_MESSAGE) {
      UnknownFieldSet inner;
      if (inner.ParseFromString(field.length_delimited())) {
        Walk(*descriptor->message_type(), inner, absl::StrCat(path, "."), violations);
      } else {
        violations->push_back({std::move(path), "must be a well-formed protobuf message"});
      }
    }
  }
}

}  // namespace

std::vector<Violation> ExplainUnparsable(const Descriptor& type, const std::string& bytes) {
  std::vector<Violation> violations;
  UnknownFieldSet fields;
  if (fields.ParseFromString(bytes)) {
    Walk(type, fields, "", &violations);
  }
  if (violations.empty()) {
    violations.push_back({"request", absl::StrCat("must be a well-formed ", type.full_name())});
  }
  return violations;
}

}  // namespace convtune::rpc::messages
