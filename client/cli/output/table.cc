#include "client/cli/output/fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace convtune::cli::output {
namespace {

constexpr int kIndent = 6;     // columns before what stands below its row
constexpr int kShortest = 20;  // columns of a part of a broken text, however narrow the terminal

// Bytes of the first `width` code points.
size_t Prefix(const std::string& text, int width) {
  int seen = 0;
  size_t end = 0;
  while (end < text.size()) {
    const bool starts = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts && ++seen > width) break;
    ++end;
  }
  return end;
}

// The parts of `text` of at most `width` columns, broken at spaces where there
// are any.
std::vector<std::string> Wrap(std::string text, int width) {
  std::vector<std::string> parts;
  while (DisplayWidth(text) > width) {
    const size_t most = Prefix(text, width);
    const size_t space = text.rfind(' ', most);
    const bool at_space = space != std::string::npos && space > 0;
    parts.push_back(text.substr(0, at_space ? space : most));
    text.erase(0, at_space ? space + 1 : most);
  }
  if (!text.empty()) parts.push_back(std::move(text));
  return parts;
}

}  // namespace

std::string Paint(const std::string& text, Color color, bool enabled) {
  if (!enabled || color == Color::kNone || text.empty()) return text;
  constexpr const char* kCodes[] = {"0", "32", "33", "31", "1"};  // by Color
  return absl::StrCat("\x1b[", kCodes[static_cast<size_t>(color)], "m", text, "\x1b[0m");
}

int DisplayWidth(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Table::Table(const Fields& fields) {
  Row& titles = rows_.emplace_back();
  for (const Field& field : fields) {
    if (field.heading.empty()) continue;
    const std::string title(field.heading == " " ? "" : field.heading);
    titles.push_back({title, Color::kBold, field.value.align});
  }
}

void Table::Add(const Fields& fields) {
  Row& row = rows_.emplace_back();
  for (const Field& field : fields) {
    if (field.heading.empty()) continue;
    row.push_back({field.value.InTable(), field.value.color, rows_[0][row.size()].align});
  }
}

// Of the columns from `first` to before `end`.
std::string Table::Line(const Row& row, size_t first, size_t end, const std::vector<int>& widths,
                        bool color) {
  std::string line;
  for (size_t i = first; i < end; ++i) {
    const std::string padding(std::max(0, widths[i] - DisplayWidth(row[i].text)), ' ');
    const std::string painted = Paint(row[i].text, row[i].color, color);
    if (row[i].align == Align::kRight) {
      absl::StrAppend(&line, padding, painted);
    } else {
      absl::StrAppend(&line, painted, i + 1 == row.size() ? "" : padding);
    }
    if (i + 1 != end) line += "  ";
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string Table::Render(int width, bool color) const {
  const size_t columns = rows_[0].size();
  std::vector<int> widths(columns);
  for (const Row& row : rows_) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i].text));
  }
  std::string out;
  for (const Row& row : rows_) {
    for (size_t begin = 0, end = 0; begin < columns; begin = end) {
      const std::string indent(begin > 0 ? kIndent : 0, ' ');
      const int room = begin > 0 ? std::max(width - kIndent, kShortest) : width;
      end = begin + 1;
      for (int used = widths[begin];
           end < columns && (width <= 0 || used + 2 + widths[end] <= room); ++end) {
        used += 2 + widths[end];
      }
      if (begin > 0 && end - begin == 1 && end == columns) {
        for (const std::string& part : Wrap(row[begin].text, room)) {
          absl::StrAppend(&out, indent, Paint(part, row[begin].color, color), "\n");
        }
      } else if (const std::string line = Line(row, begin, end, widths, color);
                 begin == 0 || !line.empty()) {
        absl::StrAppend(&out, indent, line, "\n");
      }
    }
  }
  return out;
}

}  // namespace convtune::cli::output
