// Fields are the columns of one row with its values, each a Value. A verb lists them once, in a
// function of the row; the printers make lines of CSV, a Table or JSON of any list.
#pragma once

#include <google/protobuf/message.h>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace convtune::cli::output {

enum class Align { kLeft, kRight };
enum class Color { kNone, kGreen, kYellow, kRed, kBold };

// Text in `color`, if `enabled`.
std::string Paint(const std::string& text, Color color, bool enabled);
// Columns that UTF-8 text takes, counting code points.
int DisplayWidth(const std::string& text);

// A document, or a part of one, in one line. nlohmann-json writes the texts; no header includes it,
// since it takes seconds to compile. Value type.
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

  std::string InTable() const;
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
// The number of microseconds if it is above 0, else nothing; in a table "12.3 us" or "-".
Value Micros(double us);

// The one format, of JSON and CSV, that has a field; kNothing: both have it.
enum class Only { kNothing, kJson, kCsv };

// Value type; its texts outlive it.
struct Field {
  // Of a JSON document.
  Field(std::string_view in_json, Value its_value) : name(in_json), value(std::move(its_value)) {}
  // Of a row.
  Field(std::string_view its_name, std::string_view its_heading, Value its_value,
        Only one = Only::kNothing)
      : name(its_name), heading(its_heading), value(std::move(its_value)), only(one) {}

  std::string_view name;  // in JSON, such as "lastResort"; in CSV "last_resort". Empty: in neither
  std::string_view heading;  // in a table; empty: not there; a space: a column without a heading
  Value value;
  Only only = Only::kNothing;
};
using Fields = std::vector<Field>;

// One line of CSV (RFC 4180, but ends with "\n").
std::string CsvLine(const std::vector<std::string>& fields);
std::string CsvHeading(const Fields& fields);
std::string CsvRow(const Fields& fields);
// An object with these members, in this order.
Json JsonRow(const Fields& fields);

// A Table prints rows for people: columns aligned by their widest cell, two spaces between them.
// Value type.
class Table {
 public:
  // Without rows, with the headings of `fields`.
  explicit Table(const Fields& fields);

  void Add(const Fields& fields);

  // All lines, at most `width` columns wide (0: as wide as they are). The columns that do not fit
  // stand below their row, and the last one is broken at spaces.
  std::string Render(int width, bool color) const;

 private:
  struct Cell {
    std::string text;
    Color color;
    Align align;
  };
  using Row = std::vector<Cell>;

  static std::string Line(const Row& row, size_t first, size_t end, const std::vector<int>& widths,
                          bool color);

  std::vector<Row> rows_;  // the headings first
};

template <typename Rows>
using RowOf = std::decay_t<decltype(*std::declval<const Rows&>().begin())>;

template <typename Rows, typename FieldsOf>
Json JsonRows(const Rows& rows, const FieldsOf& fields_of) {
  std::vector<Json> elements;
  for (const auto& row : rows) elements.push_back(JsonRow(fields_of(row)));
  return JsonArray(elements);
}

// `example` is for the headings.
template <typename Rows, typename FieldsOf>
Table TableOf(const Rows& rows, const FieldsOf& fields_of, const RowOf<Rows>& example = {}) {
  Table table(fields_of(example));
  for (const auto& row : rows) table.Add(fields_of(row));
  return table;
}

}  // namespace convtune::cli::output
