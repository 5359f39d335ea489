// Fields are the columns of one row with its values. A verb lists them once, in a function of the
// row; the printers make lines of CSV, a table or JSON of any list.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/value.h"

namespace convtune::cli::output {

enum class Only { kNothing, kJson, kCsv };

struct Field {
  std::string_view name;     // in JSON; in CSV with "_" before what are capitals. Empty: in neither
  std::string_view heading;  // in a table; empty: not there
  Value value;
  Only only = Only::kNothing;  // `name` is for that one alone
};
using Fields = std::vector<Field>;

std::string CsvHeading(const Fields& fields);
std::string CsvRow(const Fields& fields);
Json JsonRow(const Fields& fields);
// A table without rows that has their headings.
Table TableLike(const Fields& fields);
void AddRow(const Fields& fields, Table* table);

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
  Table table = TableLike(fields_of(example));
  for (const auto& row : rows) AddRow(fields_of(row), &table);
  return table;
}

}  // namespace convtune::cli::output
