// A JsonObject builds a JSON document around the API's messages. nlohmann-json
// writes the texts; no header includes it, since it takes seconds to compile.
#pragma once

#include <google/protobuf/message.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::cli::output {

// `text` as a JSON string, quotes included. Bytes that are no UTF-8 become
// U+FFFD.
std::string JsonString(std::string_view text);
// protobuf's JSON form, in one line; INTERNAL errors cannot occur for messages
// without Any.
std::string JsonMessage(const google::protobuf::Message& message);
// Of JSON values.
std::string JsonArray(const std::vector<std::string>& elements);

template <typename Messages>
std::string JsonMessages(const Messages& messages) {
  std::vector<std::string> elements;
  for (const auto& message : messages) elements.push_back(JsonMessage(message));
  return JsonArray(elements);
}

// An object, written in the order of the calls. Value type.
class JsonObject {
 public:
  JsonObject& Add(std::string_view key, std::string_view text) {
    return AddRaw(key, JsonString(text));
  }
  JsonObject& Add(std::string_view key, const char* text) { return AddRaw(key, JsonString(text)); }
  JsonObject& Add(std::string_view key, std::same_as<bool> auto value) {
    return AddRaw(key, value ? "true" : "false");
  }
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonObject& Add(std::string_view key, T value) {
    return AddRaw(key, std::to_string(value));
  }
  // To six digits; null unless it is finite.
  JsonObject& Add(std::string_view key, double value);
  JsonObject& Add(std::string_view key, std::optional<double> value) {
    return value ? Add(key, *value) : AddRaw(key, "null");
  }
  JsonObject& Add(std::string_view key, const std::vector<std::string>& texts);
  JsonObject& Add(std::string_view key, const google::protobuf::Message& message) {
    return AddRaw(key, JsonMessage(message));
  }
  // `json` as it is.
  JsonObject& AddRaw(std::string_view key, std::string_view json);
  // The members of an object.
  JsonObject& AddMembers(const google::protobuf::Message& message);
  std::string Take() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

}  // namespace convtune::cli::output
