// Functions that write a line to this process's log, which logging.h sets up: the only
// way in which our code logs. Thread-safe.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"

namespace convtune::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// False where lines of this level are not written.
bool IsOn(Level level);
void Write(Level level, std::string_view message);

// Converts texts for absl: Debian's absl has a string_view of its own.
inline absl::string_view ToArgument(std::string_view text) { return {text.data(), text.size()}; }
template <typename Value>
const Value& ToArgument(const Value& value) {
  return value;
}

// `format` has $0, $1, ... for the values, as absl::Substitute takes them.
template <typename... Values>
void Write(Level level, std::string_view format, const Values&... values) {
  if (!IsOn(level)) return;
  Write(level, std::string_view(absl::Substitute(ToArgument(format), ToArgument(values)...)));
}
template <typename... Values>
void Debug(std::string_view format, const Values&... values) {
  Write(Level::kDebug, format, values...);
}
template <typename... Values>
void Info(std::string_view format, const Values&... values) {
  Write(Level::kInfo, format, values...);
}
template <typename... Values>
void Warn(std::string_view format, const Values&... values) {
  Write(Level::kWarn, format, values...);
}
template <typename... Values>
void Error(std::string_view format, const Values&... values) {
  Write(Level::kError, format, values...);
}

}  // namespace convtune::log
