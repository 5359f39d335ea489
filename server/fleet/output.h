// What the fleet's commands print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace convtune {

// Exit codes of the program, as the command line's.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitOutOfReach = 4;

// Says the error on standard error; returns the exit code.
int SayResult(const absl::Status& status);

// Rows under headings, aligned; the first column's cells to the left, numbers'
// ("12", "1.5 s") to the right. Value type.
class FleetTable {
 public:
  explicit FleetTable(std::vector<std::string> headings) { rows_.push_back(std::move(headings)); }
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string ToText() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A JSON object, its fields in the order in which they were added. Value type.
class JsonObject {
 public:
  JsonObject& Text(std::string_view key, std::string_view value);
  JsonObject& Int(std::string_view key, int64_t value);
  JsonObject& Real(std::string_view key, double value);  // null unless it is finite
  JsonObject& MaybeReal(std::string_view key, std::optional<double> value);
  JsonObject& Bool(std::string_view key, bool value);
  JsonObject& Texts(std::string_view key, const std::vector<std::string>& values);
  // `json` is a value.
  JsonObject& Raw(std::string_view key, std::string_view json);
  std::string ToText() const { return fields_ + "}"; }

 private:
  void Key(std::string_view key);
  std::string fields_ = "{";
};

std::string JsonText(std::string_view value);
std::string JsonList(const std::vector<std::string>& values);

// "3 s", "5 min", "2 h", "4 d".
std::string Age(absl::Duration age);
// "12.3"; "-" for nothing.
std::string Micros(std::optional<double> us);

}  // namespace convtune
