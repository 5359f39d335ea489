// The daemon's log: one line for each event on standard error.
#pragma once

#include <spdlog/formatter.h>

#include <memory>
#include <string>

namespace convtune::convtuned {

// Lines of text ("2026-01-31T12:00:00.123Z info message request_id=...") or
// JSON objects (ts, level, message, and request_id where there is one). Control
// characters are escaped in both, so that an event is always one line, and JSON
// is always valid UTF-8.
std::unique_ptr<spdlog::formatter> NewLogFormatter(bool json);

// Replaces spdlog's default logger. `level` is "debug", "info", "warn" or
// "error". Call it before other threads log.
void InitLogging(bool json, const std::string& level);

}  // namespace convtune::convtuned
