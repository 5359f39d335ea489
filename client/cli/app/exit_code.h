// An ExitCode is what convtune and convtune-fleet end with.
#pragma once

#include "absl/status/status.h"

namespace convtune::cli::app {

enum class ExitCode {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,        // usage, or an invalid problem
  kMiss = 3,         // a miss, or not found
  kUnreachable = 4,  // no daemon
};

// The exit code of a batch whose parts ended with `a` and `b`: the first that
// applies of 4, 2, 1, 3, 0.
ExitCode Worse(ExitCode a, ExitCode b);

// The exit code after a call that ended with `status`.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace convtune::cli::app
