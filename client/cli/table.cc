#include "client/cli/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convtune {
namespace {

std::string Cut(const std::string& text, int width) {
  if (DisplayWidth(text) <= width) return text;
  if (width < 4) return "";
  int seen = 0;
  size_t end = 0;
  while (end < text.size()) {
    const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts && ++seen > width - 3) break;
    ++end;
  }
  return text.substr(0, end) + "...";
}

}  // namespace

std::string Paint(const std::string& text, Color color, bool enabled) {
  if (!enabled || color == Color::kNone || text.empty()) return text;
  const char* code = "1";
  if (color == Color::kGreen) code = "32";
  if (color == Color::kYellow) code = "33";
  if (color == Color::kRed) code = "31";
  return absl::StrCat("\x1b[", code, "m", text, "\x1b[0m");
}

int DisplayWidth(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Table::Render(int width, bool color) const {
  const size_t last = columns_.size() - 1;
  std::vector<int> widths;
  int before_last = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int widest = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) widest = std::max(widest, DisplayWidth(row[i].text));
    widths.push_back(widest);
    if (i < last) before_last += widest + 2;
  }
  std::string out;
  const auto add_line = [&](const auto& cell_at) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      Cell cell = cell_at(i);
      if (i == last && width > 0) {
        const int room = std::max(width - before_last, DisplayWidth(columns_[i].title));
        cell.text = Cut(cell.text, room);
      }
      const std::string padding(std::max(0, widths[i] - DisplayWidth(cell.text)), ' ');
      const std::string painted = Paint(cell.text, cell.color, color);
      if (columns_[i].align == Align::kRight) {
        absl::StrAppend(&line, padding, painted);
      } else {
        absl::StrAppend(&line, painted, i == last ? "" : padding);
      }
      if (i != last) line += "  ";
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    absl::StrAppend(&out, line, "\n");
  };
  add_line([&](size_t i) { return Cell(columns_[i].title, Color::kBold); });
  for (const auto& row : rows_) add_line([&](size_t i) { return row[i]; });
  return out;
}

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    const std::string& field = fields[i];
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      line += field;
      continue;
    }
    line += '"';
    for (const char c : field) {
      if (c == '"') line += '"';
      line += c;
    }
    line += '"';
  }
  line += '\n';
  return line;
}

}  // namespace convtune
