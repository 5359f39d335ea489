// A Clock tells the time; tests have one of their own.
#pragma once

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

}  // namespace convtune
