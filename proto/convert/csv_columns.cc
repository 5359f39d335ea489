#include "proto/convert/csv_columns.h"

#include <utility>

#include "proto/base/strings.h"
#include "proto/model/enums.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr std::string_view kColumns[] = {
    "n",     "c",        "d",          "h",        "w",      "k",     "t",
    "r",     "s",        "pad_d",      "pad_h",    "pad_w",  "dil_d", "dil_h",
    "dil_w", "stride_d", "stride_h",   "stride_w", "groups", "op",    "dtype",
    "count", "layout",   "transposed", "out_d",    "out_h",  "out_w", "problem",
};
// Used for transposed rows alone, so that they do not make a header a header.
constexpr std::string_view kOutputColumns[] = {"out_d", "out_h", "out_w"};

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"dilation_d", "dil_d"}, {"dilation_h", "dil_h"}, {"dilation_w", "dil_w"},
    {"operation", "op"},     {"precisions", "dtype"}, {"filter_h", "r"},
    {"filter_w", "s"},       {"filter_d", "t"},       {"misses", "count"},
};

}  // namespace

std::string_view CanonicalColumn(std::string_view name) {
  const std::string lower = LowerCase(name);
  for (const auto& [alias, column] : kAliases) {
    if (lower == alias) return column;
  }
  for (const std::string_view column : kColumns) {
    if (lower == column) return column;
  }
  if (lower == kEnvironmentColumn) return kEnvironmentColumn;
  return {};
}

bool IsOutputColumn(std::string_view column) {
  for (const std::string_view known : kOutputColumns) {
    if (known == column) return true;
  }
  return false;
}

std::optional<std::vector<std::string>> SplitCsvLine(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] == '"') {
      std::string field;
      size_t i = first + 1;
      for (;; ++i) {
        if (i >= line.size()) return std::nullopt;
        if (line[i] == '"') {
          if (i + 1 >= line.size() || line[i + 1] != '"') break;
          ++i;
        }
        field.push_back(line[i]);
      }
      line.remove_prefix(i + 1);
      if (!Strip(line.substr(0, line.find(','))).empty()) return std::nullopt;
      fields.emplace_back(Strip(field));
    } else {
      fields.emplace_back(Strip(line.substr(0, line.find(','))));
    }
    const size_t comma = line.find(',');
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

bool LooksLikeCsvHeader(std::string_view line) {
  const std::optional<std::vector<std::string>> fields = SplitCsvLine(line);
  if (!fields || ParseOperation(fields->front())) return false;
  for (const std::string& field : *fields) {
    const std::string_view column = CanonicalColumn(field);
    if (!column.empty() && !IsOutputColumn(column)) return true;
  }
  return false;
}

}  // namespace convtune
