#include "client/cli/json.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convtune {
namespace {

bool IsContinuation(const std::string& text, size_t i) {
  return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
}

// Length of the well-formed UTF-8 sequence at `i`; 0 if there is none.
size_t SequenceLength(const std::string& text, size_t i) {
  const auto lead = static_cast<unsigned char>(text[i]);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (size_t k = 1; k < length; ++k) {
    if (!IsContinuation(text, i + k)) return 0;
  }
  const auto second = static_cast<unsigned char>(text[i + 1]);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

std::string JsonString(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = SequenceLength(text, i);
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out + "\"";
}

std::string JsonMessage(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) return "{}";
  return json;
}

JsonObject& JsonObject::AddRaw(const std::string& key, const std::string& json) {
  absl::StrAppend(&members_, members_.empty() ? "" : ",", JsonString(key), ":", json);
  return *this;
}

JsonObject& JsonObject::Add(const std::string& key, const std::string& text) {
  return AddRaw(key, JsonString(text));
}

JsonObject& JsonObject::Add(const std::string& key, const google::protobuf::Message& message) {
  return AddRaw(key, JsonMessage(message));
}

JsonObject& JsonObject::AddMembers(const google::protobuf::Message& message) {
  const std::string json = JsonMessage(message);
  const std::string inner = json.substr(1, json.size() - 2);
  if (!inner.empty()) absl::StrAppend(&members_, members_.empty() ? "" : ",", inner);
  return *this;
}

std::string JsonArray(const std::vector<std::string>& elements) {
  return absl::StrCat("[", absl::StrJoin(elements, ","), "]");
}

}  // namespace convtune
