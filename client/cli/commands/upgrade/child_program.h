// A child program that runs to its end, and what it said.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune::cli {

// Names and values that a child has besides, or in place of, ours.
using Variables = std::vector<std::pair<std::string, std::string>>;

// Our environment with `variables`, as NAME=VALUE.
std::vector<std::string> EnvironmentWith(const Variables& variables);

struct ProgramOutput {
  bool succeeded = false;  // it ended with 0
  std::string text;        // standard output and errors
};

// Runs `command`, whose first word is looked for in PATH, with no input.
// FAILED_PRECONDITION if it cannot be started.
absl::StatusOr<ProgramOutput> RunToEnd(const std::vector<std::string>& command,
                                       const Variables& variables);

}  // namespace convtune::cli
