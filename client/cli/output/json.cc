#include "client/cli/output/json.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace convtune::cli::output {

std::string JsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonMessage(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) return "{}";
  return json;
}

std::string JsonArray(const std::vector<std::string>& elements) {
  return absl::StrCat("[", absl::StrJoin(elements, ","), "]");
}

JsonObject& JsonObject::Add(std::string_view key, double value) {
  return AddRaw(key, std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null");
}

JsonObject& JsonObject::Add(std::string_view key, const std::vector<std::string>& texts) {
  std::vector<std::string> elements;
  for (const std::string& text : texts) elements.push_back(JsonString(text));
  return AddRaw(key, JsonArray(elements));
}

JsonObject& JsonObject::AddRaw(std::string_view key, std::string_view json) {
  absl::StrAppend(&members_, members_.empty() ? "" : ",", JsonString(key), ":");
  members_ += json;
  return *this;
}

JsonObject& JsonObject::AddMembers(const google::protobuf::Message& message) {
  const std::string json = JsonMessage(message);
  const std::string inner = json.substr(1, json.size() - 2);
  if (!inner.empty()) absl::StrAppend(&members_, members_.empty() ? "" : ",", inner);
  return *this;
}

}  // namespace convtune::cli::output
