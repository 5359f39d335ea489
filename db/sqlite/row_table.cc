#include "db/sqlite/row_table.h"

#include <algorithm>

namespace convtune::db::sqlite {

Table::Table(std::string_view table, std::string_view key, std::vector<std::string_view> names)
    : name(table), columns(std::move(names)) {
  std::vector<std::string_view> key_columns = Split(key, ',');
  for (std::string_view& column : key_columns) column = Strip(column);
  std::string inserted, parameters, checked, changes;
  for (size_t i = 0; i < columns.size(); ++i) {
    AppendTo(&inserted, columns[i], ", ");
    AppendTo(&parameters, ", ?", i + 1);
    AppendTo(&checked, ", ", name, ".", columns[i]);
    // Not the key, which is equal anyway: SQLite would look for every row of other
    // tables that refers to it, and a release has a million of them.
    if (std::find(key_columns.begin(), key_columns.end(), columns[i]) != key_columns.end())
      continue;
    AppendTo(&changes, columns[i], " = excluded.", columns[i], ", ");
  }
  list =
      Concat(checked.substr(2), ", ", name, ".checksum IS row_checksum('", name, "'", checked, ")");
  insert = Concat("INSERT INTO ", name, " (", inserted, "checksum) VALUES (", parameters.substr(2),
                  ", row_checksum('", name, "'", parameters, "))");
  put = Concat(insert, " ON CONFLICT (", key, ") DO UPDATE SET ", changes,
               "checksum = excluded.checksum");
}

}  // namespace convtune::db::sqlite
