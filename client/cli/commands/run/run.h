// Runs another program in the place of this one, for `convtune run`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/child_program.h"

namespace convtune::cli::commands::run {

// The end of a program: by an exit code or by a signal.
struct ProgramEnd {
  int exit_code = 0;  // meaningful unless a signal killed it
  int signal = 0;     // the one that killed it; 0 if none did
};

// Runs `command` (its first word is looked up in PATH) with these variables
// added to the environment, and waits for it. Signals that this process gets
// meanwhile go to the program, those that the terminal sent to both of them
// alone excepted. NOT_FOUND: the program is not there; PERMISSION_DENIED: it
// cannot be run. To be called while the process has one thread.
absl::StatusOr<ProgramEnd> RunProgramAndWait(const std::vector<std::string>& command,
                                             const Variables& variables);

}  // namespace convtune::cli::commands::run
