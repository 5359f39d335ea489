// A Value is one field of output: a table, CSV and JSON show it each in their own way.
#pragma once

#include <google/protobuf/message.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/output/json.h"
#include "client/cli/output/table.h"

namespace convtune::cli::output {

// A Value is one cell of a verb's output. Numbers stand at the right of their column. Value
// type.
struct Value {
  Value(std::string text) : written(std::move(text)), is_text(true) {}   // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}             // NOLINT
  Value(const char* text) : Value(std::string(text)) {}                  // NOLINT
  Value(std::same_as<bool> auto is) : written(is ? "true" : "false") {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T number)  // NOLINT
      : written(std::to_string(number)), align(Align::kRight) {}
  // The number is written with six digits. One that is not finite is null in JSON.
  Value(double number);  // NOLINT
  // A missing number is an empty cell in CSV and null in JSON.
  Value(std::optional<double> number);  // NOLINT
  // The texts are separated by spaces in a table and in CSV.
  Value(const std::vector<std::string>& texts);  // NOLINT
  // For JSON alone.
  Value(const std::vector<Json>& elements) : Value(JsonArray(elements)) {}          // NOLINT
  Value(Json document) : json(std::move(document.text)) {}                          // NOLINT
  Value(const google::protobuf::Message& message) : Value(JsonMessage(message)) {}  // NOLINT

  // Another text in a table.
  Value& Shown(std::string text);
  // The text that `shorten` makes of it in a table.
  Value& Shown(std::string (*shorten)(const std::string&));
  Value& Right();
  Value& In(Color text_color);

  Table::Cell ToCell() const;
  Json ToJson() const;

  std::string written;               // in CSV
  std::optional<std::string> shown;  // in a table; nullopt: as in CSV
  std::string (*shortener)(const std::string&) = nullptr;
  std::string json;  // empty: as in CSV, in quotes if it is a text
  bool is_text = false;
  Align align = Align::kLeft;
  Color color = Color::kNone;
};

// "1.5 MiB" in a table, bytes elsewhere.
Value Bytes(int64_t bytes);
// The number if it is above 0, else nothing.
Value Positive(double number);
// The same of microseconds, in a table "12.3 us" or "-".
Value Micros(double us);

struct Member {
  std::string key;
  Value value;
};
using Members = std::vector<Member>;
// An object with these members, in this order.
Json JsonObject(const Members& members);

}  // namespace convtune::cli::output
