#include "client/cli/output/fields.h"

#include <google/protobuf/util/json_util.h>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

Table::Cell Value::ToCell() const {
  const std::string& text = shown ? *shown : written;
  return {shortener != nullptr ? shortener(text) : text, color};
}

Json Value::ToJson() const {
  if (!json.empty()) return {json};
  return is_text ? JsonString(written) : Json{written};
}

Value Bytes(int64_t bytes) { return Value(bytes).Shown(FormatBytes(bytes)); }

Value Positive(double number) { return number > 0 ? std::make_optional(number) : std::nullopt; }

Value Micros(double us) { return Positive(us).Shown(FormatMicroseconds(us)); }

Json JsonObject(const Members& members) {
  const auto append = [](std::string* out, const Member& member) {
    absl::StrAppend(out, JsonString(member.key).text, ":", member.value.ToJson().text);
  };
  return {absl::StrCat("{", absl::StrJoin(members, ",", append), "}")};
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
  Members members;
  for (const Field& field : fields) {
    if (IsIn(field, Only::kJson)) members.push_back({std::string(field.name), field.value});
  }
  return JsonObject(members);
}

Table TableLike(const Fields& fields) {
  std::vector<Table::Column> columns;
  for (const Field& field : fields) {
    if (!field.heading.empty()) columns.push_back({std::string(field.heading), field.value.align});
  }
  return Table(std::move(columns));
}

void AddRow(const Fields& fields, Table* table) {
  std::vector<Table::Cell> cells;
  for (const Field& field : fields) {
    if (!field.heading.empty()) cells.push_back(field.value.ToCell());
  }
  table->Add(std::move(cells));
}

}  // namespace convtune::cli::output
