// A Json is a document, or a part of one, in one line. nlohmann-json writes the texts; no header
// includes it, since it takes seconds to compile.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <vector>

namespace convtune::cli::output {

// Value type.
struct Json {
  std::string text;
};

// `text` in quotes. Bytes that are no UTF-8 become U+FFFD.
Json JsonString(std::string_view text);
// protobuf's JSON form; its errors cannot occur for messages without Any.
Json JsonMessage(const google::protobuf::Message& message);
Json JsonArray(const std::vector<Json>& elements);
// An object with the members of both.
Json JsonMerged(const Json& first, const Json& second);

template <typename Messages>
Json JsonMessages(const Messages& messages) {
  std::vector<Json> elements;
  for (const auto& message : messages) elements.push_back(JsonMessage(message));
  return JsonArray(elements);
}

}  // namespace convtune::cli::output
