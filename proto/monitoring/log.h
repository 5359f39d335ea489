// Functions that set up the log of convtuned and of convtune-fleet's agent, one line for each
// event on standard error, and that write to it: the only way in which our code logs.
// Nobody waits long for a log that cannot be written. Thread-safe, but for Init.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"

namespace spdlog {
class formatter;
}

namespace convtune::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// False where lines of this level are not written.
bool IsOn(Level level);
void Write(Level level, std::string_view message);

// An event that is kept whatever the level is: who changed what. `object` is the text of a JSON
// object. Lines of text have the word "audit" in the level's place; JSON lines have the level
// "audit", and the object in the member `audit` in place of a message.
void Audit(std::string_view object);

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

// The id of the request that the calling thread works for; empty: none.
using RequestId = std::string_view (*)();

// Lines of text ("2026-01-31T12:00:00.123Z info message request_id=...") or
// JSON objects (ts, level, message, and request_id where there is one). Control
// characters are escaped in both, so that an event is always one line, and JSON
// is always valid UTF-8.
std::unique_ptr<spdlog::formatter> NewFormatter(bool json, RequestId request_id);

// Replaces spdlog's default logger. `level` is "debug", "info", "warn" or
// "error". Call it before other threads log. Without `request_id` no line has one.
void Init(bool json, const std::string& level, RequestId request_id = nullptr);
// From now on.
void SetLevel(const std::string& level);

}  // namespace convtune::log
