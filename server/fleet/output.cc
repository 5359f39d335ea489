#include "server/fleet/output.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

bool LooksLikeANumber(const std::string& cell) {
  return !cell.empty() && ((cell[0] >= '0' && cell[0] <= '9') || cell == "-" ||
                           (cell[0] == '-' && cell.size() > 1 && cell[1] >= '0' && cell[1] <= '9'));
}

}  // namespace

int SayResult(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  std::cerr << "error: " << status.message() << '\n';
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitOutOfReach;
    default:
      return kExitFailed;
  }
}

std::string FleetTable::ToText() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  std::vector<bool> right(rows_[0].size(), rows_.size() > 1);
  right[0] = false;
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t column = 0; column < widths.size(); ++column) {
      const std::string& cell = rows_[row][column];
      widths[column] = std::max(widths[column], cell.size());
      if (row > 0 && !LooksLikeANumber(cell)) right[column] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t column = 0; column < widths.size(); ++column) {
      const std::string space(widths[column] - row[column].size(), ' ');
      absl::StrAppend(&line, column > 0 ? "  " : "", right[column] ? space : "", row[column],
                      right[column] ? "" : space);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string JsonText(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    switch (c) {
      case '"':
        text += "\\\"";
        break;
      case '\\':
        text += "\\\\";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(&text, "\\u%04x", static_cast<int>(c));
        } else {
          text += c;
        }
    }
  }
  return text + "\"";
}

std::string JsonList(const std::vector<std::string>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

void JsonObject::Key(std::string_view key) {
  AppendTo(&fields_, fields_.size() > 1 ? "," : "", JsonText(key), ":");
}
JsonObject& JsonObject::Text(std::string_view key, std::string_view value) {
  return Raw(key, JsonText(value));
}
JsonObject& JsonObject::Int(std::string_view key, int64_t value) {
  return Raw(key, absl::StrCat(value));
}
JsonObject& JsonObject::Real(std::string_view key, double value) {
  return Raw(key, std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null");
}
JsonObject& JsonObject::MaybeReal(std::string_view key, std::optional<double> value) {
  return value.has_value() ? Real(key, *value) : Raw(key, "null");
}
JsonObject& JsonObject::Bool(std::string_view key, bool value) {
  return Raw(key, value ? "true" : "false");
}
JsonObject& JsonObject::Texts(std::string_view key, const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(JsonText(value));
  return Raw(key, JsonList(quoted));
}
JsonObject& JsonObject::Raw(std::string_view key, std::string_view json) {
  Key(key);
  fields_ += json;
  return *this;
}

std::string Age(absl::Duration age) {
  const double seconds = absl::ToDoubleSeconds(age);
  if (seconds < 120) return absl::StrFormat("%.0f s", seconds);
  if (seconds < 7200) return absl::StrFormat("%.0f min", seconds / 60);
  if (seconds < 2 * 86400) return absl::StrFormat("%.0f h", seconds / 3600);
  return absl::StrFormat("%.0f d", seconds / 86400);
}

std::string Micros(std::optional<double> us) {
  return us.has_value() ? absl::StrFormat("%.1f", *us) : "-";
}

}  // namespace convtune
