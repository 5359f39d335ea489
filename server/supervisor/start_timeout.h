// A StartTimeout says until when a daemon waits for a process that starts. It counts from
// the last sign of life, since libraries of gigabytes may come from a cold disk. Not
// thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune::supervisor {

// Work of a process since it began, as the kernel counts it: CPU time and
// page faults. It grows while libraries are read and relocated, however slow the
// disk, and stands still in a process that hangs. 0 where it cannot be told.
uint64_t WorkDone(pid_t pid);

// The limits on the time that a process may take to start.
struct StartLimits {
  absl::Duration silence = absl::Seconds(60);  // without a sign of life
  // The limit in all: a process that goes round in circles shows signs of life for ever.
  absl::Duration longest = absl::Minutes(5);
};

class StartTimeout {
 public:
  StartTimeout(const StartLimits& limits, SteadyTime now)
      : limits_(limits), start_(now), last_sign_(now) {}

  // Notes the work that the process has done so far; a changed number is a sign of life.
  void Saw(uint64_t work_done, SteadyTime now);
  // The time at which the wait ends.
  SteadyTime end() const;
  // The reason to report after that time: "it gave no sign of life for 1m".
  std::string reason() const;

 private:
  const StartLimits limits_;
  const SteadyTime start_;
  SteadyTime last_sign_;
  uint64_t work_done_ = 0;
};

}  // namespace convtune::supervisor
