#pragma once

#include "absl/status/status.h"

namespace convtune {

// What the program ends with.
enum class ExitCode {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,        // usage, or an invalid problem
  kMiss = 3,         // a miss, or not found
  kUnreachable = 4,  // no daemon
};

// What a batch ends with when its parts ended with `a` and `b`: the first that
// applies of 4, 2, 1, 3, 0.
ExitCode Worse(ExitCode a, ExitCode b);

// What a call that ended with `status` ends the program with.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace convtune
