// Runs another program in the place of this one, for `convtune run`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/child_program.h"

namespace convtune::cli::commands::run {

// Runs `command` (its first word is looked up in PATH) with these variables
// added to the environment, and returns how it ended, as waitpid says it. Signals that this process
// gets meanwhile go to the program, those that the terminal sent to both of them alone excepted.
// NOT_FOUND: the program is not there; PERMISSION_DENIED: it cannot be run. To be called while the
// process has one thread.
absl::StatusOr<int> RunProgramAndWait(const std::vector<std::string>& command,
                                      const Variables& variables);

}  // namespace convtune::cli::commands::run
