// ParseDuration reads a time as people write it. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace convtune {

// Reads what absl::ParseDuration reads, "500ms" or "1h30m", and days in front: "30d", "1d12h".
// nullopt: it is no time.
inline std::optional<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration days;
  const size_t number = text.find_first_not_of("0123456789.");
  if (number != std::string_view::npos && text[number] == 'd') {
    if (!absl::ParseDuration(std::string(text.substr(0, number)) + "h", &days)) return std::nullopt;
    days *= 24;
    text.remove_prefix(number + 1);
    if (text.empty()) return days;
    if (text.front() == '-' || text.front() == '+') return std::nullopt;
  }
  absl::Duration rest;
  if (!absl::ParseDuration(std::string(text), &rest)) return std::nullopt;
  return days + rest;
}

}  // namespace convtune
