// Functions that start child programs: RunToEnd also waits, and says what the child printed.
#pragma once

#include <sys/types.h>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace convtune {

// Names and values that a child has besides, or in place of, ours.
using Variables = std::vector<std::pair<std::string, std::string>>;

// Pointers to the words with a null behind them, as exec and posix_spawn take
// them. The words must outlive them.
std::vector<char*> PointersTo(std::vector<std::string>* words);

// Starts `command`, whose first word is looked for in PATH, with no input. Its descriptors from 1
// on are `fds`, and it has no others. `apart`: in a process group of its own, with no signal
// blocked or ignored. Where it cannot be started, the error has the errno's status code.
absl::StatusOr<pid_t> Spawn(std::vector<std::string> command, const Variables& variables,
                            const std::vector<int>& fds, bool apart = false);

// The destination of a child's standard error.
enum class ChildErrors {
  kOurs,    // to our own, as it comes
  kOutput,  // into ProgramOutput::text, between its standard output
};

// $CONVTUNE_PYTHON, else python3.
std::string PythonInterpreter();

struct ProgramOutput {
  int exit_code = 0;  // -1: a signal ended it
  std::string text;   // standard output, and errors with kOutput
};

// Runs `command`, whose first word is looked for in PATH, with no input.
// FAILED_PRECONDITION if it cannot be started; DEADLINE_EXCEEDED, and it is killed, if its output
// goes on for longer than `limit`.
absl::StatusOr<ProgramOutput> RunToEnd(const std::vector<std::string>& command,
                                       const Variables& variables, ChildErrors errors,
                                       absl::Duration limit = absl::InfiniteDuration());

}  // namespace convtune
