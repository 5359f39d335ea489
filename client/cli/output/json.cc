#include "client/cli/output/json.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convtune::cli::output {

Json JsonString(std::string_view text) {
  return {nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

Json JsonMessage(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) return {"{}"};
  return {std::move(json)};
}

Json JsonArray(const std::vector<Json>& elements) {
  const auto append = [](std::string* out, const Json& element) { out->append(element.text); };
  return {absl::StrCat("[", absl::StrJoin(elements, ",", append), "]")};
}

Json JsonMerged(const Json& first, const Json& second) {
  if (first.text == "{}") return second;
  if (second.text == "{}") return first;
  return {absl::StrCat(first.text.substr(0, first.text.size() - 1), ",", second.text.substr(1))};
}

}  // namespace convtune::cli::output
