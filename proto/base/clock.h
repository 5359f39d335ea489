// A Clock tells the time; tests have one of their own. A SteadyTime is an instant of a clock that
// nobody sets, for deadlines and durations.
#pragma once

#include <chrono>
#include <compare>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace convtune {

// As times are stored.
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

}  // namespace convtune
