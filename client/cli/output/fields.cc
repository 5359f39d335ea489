#include "client/cli/output/fields.h"

#include "absl/strings/ascii.h"

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
