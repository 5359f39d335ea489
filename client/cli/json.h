// JSON documents around the API's messages.
#pragma once

#include <string>
#include <vector>

#include <google/protobuf/message.h>

namespace convtune {

// `text` as a JSON string, quotes included. Bytes that are no UTF-8 become
// U+FFFD.
std::string JsonString(const std::string& text);
// protobuf's JSON form, in one line; INTERNAL errors cannot occur for messages
// without Any.
std::string JsonMessage(const google::protobuf::Message& message);

// An object, written in the order of the calls. Value type.
class JsonObject {
 public:
  JsonObject& Add(const std::string& key, const std::string& text);
  JsonObject& Add(const std::string& key, const google::protobuf::Message& message);
  // `json` as it is.
  JsonObject& AddRaw(const std::string& key, const std::string& json);
  // The members of an object.
  JsonObject& AddMembers(const google::protobuf::Message& message);
  std::string Take() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

std::string JsonArray(const std::vector<std::string>& elements);

template <typename Messages>
std::string JsonMessages(const Messages& messages) {
  std::vector<std::string> elements;
  for (const auto& message : messages) elements.push_back(JsonMessage(message));
  return JsonArray(elements);
}

}  // namespace convtune
