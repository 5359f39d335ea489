#include "client/cli/output/fields.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace convtune::cli::output {
namespace {

constexpr int kRoomy = 40;     // columns that are enough for a text to be cut to
constexpr int kIndent = 6;     // of what is below a row
constexpr int kShortest = 20;  // that a text is broken into

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

std::string Cut(const std::string& text, int width) {
  if (DisplayWidth(text) <= width) return text;
  return text.substr(0, Prefix(text, width - 3)) + "...";
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

// The columns from `first`, for below their row: as many to a line as fit, and
// the last on lines of its own where it does not.
std::string Table::Below(const Row& row, size_t first, const std::vector<int>& widths, int width,
                         bool color) {
  const size_t last = row.size() - 1;
  const std::string indent(kIndent, ' ');
  const int room = std::max(width - kIndent, kShortest);
  std::string out;
  for (size_t begin = first; begin <= last;) {
    size_t end = begin + 1;
    for (int used = widths[begin]; end <= last && used + 2 + widths[end] <= room; ++end) {
      used += 2 + widths[end];
    }
    if (begin == last) {
      for (const std::string& part : Wrap(row[last].text, room)) {
        absl::StrAppend(&out, indent, Paint(part, row[last].color, color), "\n");
      }
    } else if (const std::string line = Line(row, begin, end, widths, color); !line.empty()) {
      absl::StrAppend(&out, indent, line, "\n");
    }
    begin = end;
  }
  return out;
}

std::string Table::Render(int width, bool color) const {
  const size_t last = rows_[0].size() - 1;
  std::vector<int> widths(last + 1);
  for (const Row& row : rows_) {
    for (size_t i = 0; i <= last; ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i].text));
  }
  const int before_last =
      std::accumulate(widths.begin(), widths.end() - 1, 0) + 2 * static_cast<int>(last);
  const int room = width - before_last;
  const bool whole = width <= 0 || widths[last] <= room;
  // How many columns are in the row itself.
  size_t beside = last + 1;
  if (!whole && room < kRoomy) {
    beside = 1;
    for (int used = widths[0]; beside < last && used + 2 + widths[beside] <= width; ++beside) {
      used += 2 + widths[beside];
    }
  }
  std::string out;
  for (Row row : rows_) {
    if (!whole && beside > last) row[last].text = Cut(row[last].text, room);
    absl::StrAppend(&out, Line(row, 0, beside, widths, color), "\n");
    if (beside <= last) absl::StrAppend(&out, Below(row, beside, widths, width, color));
  }
  return out;
}

}  // namespace convtune::cli::output
