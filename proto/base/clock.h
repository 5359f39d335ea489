// A Clock tells the time; tests have one of their own. A SteadyTime is an instant of a clock that
// nobody sets, for deadlines and durations. ParseDuration reads a time as people write it.
#pragma once

#include <chrono>
#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace convtune {

// Cuts a time to whole microseconds, as stores keep times.
inline absl::Time ToMicros(absl::Time time) {
  return absl::FromUnixMicros(absl::ToUnixMicros(time));
}

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class SystemClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

// Value type. A time of the wall clock, which may be set, cannot be put into it.
class SteadyTime {
 public:
  static SteadyTime Now() {
    return SteadyTime(absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()));
  }
  static constexpr SteadyTime InfinitePast() { return SteadyTime(-absl::InfiniteDuration()); }
  static constexpr SteadyTime InfiniteFuture() { return SteadyTime(absl::InfiniteDuration()); }

  friend SteadyTime operator+(SteadyTime time, absl::Duration duration) {
    return SteadyTime(time.since_ + duration);
  }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) { return a.since_ - b.since_; }
  friend std::weak_ordering operator<=>(SteadyTime a, SteadyTime b) {
    if (a.since_ < b.since_) return std::weak_ordering::less;
    return a.since_ > b.since_ ? std::weak_ordering::greater : std::weak_ordering::equivalent;
  }
  friend bool operator==(SteadyTime a, SteadyTime b) { return a.since_ == b.since_; }

 private:
  constexpr explicit SteadyTime(absl::Duration since) : since_(since) {}

  absl::Duration since_;  // an instant that is the same for the whole process
};

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
