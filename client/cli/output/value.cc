#include "client/cli/output/value.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/output/units.h"

namespace convtune::cli::output {

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

}  // namespace convtune::cli::output
