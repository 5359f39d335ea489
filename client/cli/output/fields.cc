#include "client/cli/output/fields.h"

#include <google/protobuf/util/json_util.h>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/output/units.h"

namespace convtune::cli::output {
namespace {

// "lastResort" as "last_resort".
std::string SnakeCase(std::string_view name) {
  std::string snake;
  for (const char c : name) {
    if (absl::ascii_isupper(c)) snake += '_';
    snake += absl::ascii_tolower(c);
  }
  return snake;
}

bool IsIn(const Field& field, Only one) {
  return !field.name.empty() && (field.only == Only::kNothing || field.only == one);
}

}  // namespace

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

Value::Value(double number) : written(absl::StrFormat("%.6g", number)), align(Align::kRight) {
  if (!std::isfinite(number)) json = "null";
}

Value::Value(std::optional<double> number) : align(Align::kRight) {
  number ? * this = Value(*number) : json = "null";
}

Value::Value(const std::vector<std::string>& texts) : written(absl::StrJoin(texts, " ")) {
  std::vector<Json> elements;
  for (const std::string& text : texts) elements.push_back(JsonString(text));
  json = JsonArray(elements).text;
}

Value& Value::Shown(std::string text) {
  shown = std::move(text);
  return *this;
}

Value& Value::Shown(std::string (*shorten)(const std::string&)) {
  shortener = shorten;
  return *this;
}

Value& Value::Right() {
  align = Align::kRight;
  return *this;
}

Value& Value::In(Color text_color) {
  color = text_color;
  return *this;
}

std::string Value::InTable() const {
  const std::string& text = shown ? *shown : written;
  return shortener != nullptr ? shortener(text) : text;
}

Json Value::ToJson() const {
  if (!json.empty()) return {json};
  return is_text ? JsonString(written) : Json{written};
}

Value Bytes(int64_t bytes) { return Value(bytes).Shown(FormatBytes(bytes)); }

Value Positive(double number) { return number > 0 ? std::make_optional(number) : std::nullopt; }

Value Micros(double us) { return Positive(us).Shown(FormatMicroseconds(us)); }

std::string CsvLine(const std::vector<std::string>& fields) {
  const auto append = [](std::string* out, const std::string& field) {
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      out->append(field);
    } else {
      absl::StrAppend(out, "\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
    }
  };
  return absl::StrJoin(fields, ",", append) + "\n";
}

std::string CsvHeading(const Fields& fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) {
    if (IsIn(field, Only::kCsv)) names.push_back(SnakeCase(field.name));
  }
  return CsvLine(names);
}

std::string CsvRow(const Fields& fields) {
  std::vector<std::string> texts;
  for (const Field& field : fields) {
    if (IsIn(field, Only::kCsv)) texts.push_back(field.value.written);
  }
  return CsvLine(texts);
}

Json JsonRow(const Fields& fields) {
  std::vector<std::string> members;
  for (const Field& field : fields) {
    if (!IsIn(field, Only::kJson)) continue;
    members.push_back(absl::StrCat(JsonString(field.name).text, ":", field.value.ToJson().text));
  }
  return {absl::StrCat("{", absl::StrJoin(members, ","), "}")};
}

}  // namespace convtune::cli::output
