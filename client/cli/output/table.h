// A Table prints rows for people; CsvLine writes them for programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace convtune::cli::output {

enum class Align { kLeft, kRight };
enum class Color { kNone, kGreen, kYellow, kRed, kBold };

// Text in `color`, if `enabled`.
std::string Paint(const std::string& text, Color color, bool enabled);

// Columns aligned by their widest cell, two spaces between them. Value type.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  struct Cell {
    Cell(std::string t, Color c = Color::kNone) : text(std::move(t)), color(c) {}  // NOLINT
    Cell(const char* t) : text(t) {}                                               // NOLINT
    std::string text;
    Color color = Color::kNone;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell for each column.
  void Add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }

  // All lines, at most `width` wide (0: as wide as they are). The last column is cut to the
  // rest, with "..."; where that is little, what does not fit is put below its row, whole.
  std::string Render(int width, bool color) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// One line of CSV (RFC 4180, but ends with "\n").
std::string CsvLine(const std::vector<std::string>& fields);

// Columns that UTF-8 text takes, counting code points.
int DisplayWidth(const std::string& text);

}  // namespace convtune::cli::output
