// Functions that set up the log of convtuned and of convtune-fleet's agent: one line
// for each event on standard error.
#pragma once

#include <spdlog/formatter.h>

#include <memory>
#include <string>
#include <string_view>

namespace convtune::logging {

// The id of the request that the calling thread works for; empty: none.
using RequestId = std::string_view (*)();

// Lines of text ("2026-01-31T12:00:00.123Z info message request_id=...") or
// JSON objects (ts, level, message, and request_id where there is one). Control
// characters are escaped in both, so that an event is always one line, and JSON
// is always valid UTF-8.
std::unique_ptr<spdlog::formatter> NewLogFormatter(bool json, RequestId request_id);

// Replaces spdlog's default logger. `level` is "debug", "info", "warn" or
// "error". Call it before other threads log. Without `request_id` no line has one.
void InitLogging(bool json, const std::string& level, RequestId request_id = nullptr);
// From now on. Thread-safe.
void SetLogLevel(const std::string& level);

}  // namespace convtune::logging
