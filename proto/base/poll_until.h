// PollUntil is poll() with a deadline.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune {

// Waits until one of the entries is ready: returns how many are. Returns 0 at `deadline`, and -1
// with errno on an error, which a signal is not.
inline int PollUntil(std::span<pollfd> entries, SteadyTime deadline) {
  while (true) {
    // Rounded up, so that a wait never ends before its time.
    const absl::Duration left = absl::Ceil(deadline - SteadyTime::Now(), absl::Milliseconds(1));
    const auto ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0, 60'000);
    const int ready = poll(entries.data(), entries.size(), static_cast<int>(ms));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (SteadyTime::Now() >= deadline) return 0;
  }
}

}  // namespace convtune
