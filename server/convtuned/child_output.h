// Runs short-lived programs and takes their output.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/supervisor/start_timeout.h"

namespace convtune::convtuned {

struct ChildOutput {
  absl::Status status;  // what went wrong, if anything
  std::string text;     // standard output up to then, at most 1 MiB
};

// Runs all programs at once and waits for the end of each as long as `limits`
// allow (what it prints is a sign of life as well), but not after `stop` returns
// true (it is asked ten times a second): what then runs is killed and gets
// DEADLINE_EXCEEDED or CANCELLED. NOT_FOUND:
// there is no such program; INTERNAL: it failed. Results in the order of
// `commands`; each is a program and its arguments. `library_path` is as WorkerProcess takes it.
std::vector<ChildOutput> RunPrograms(const std::vector<std::vector<std::string>>& commands,
                                     const supervisor::StartLimits& limits,
                                     const std::function<bool()>& stop,
                                     const std::string& library_path = "");

}  // namespace convtune::convtuned
