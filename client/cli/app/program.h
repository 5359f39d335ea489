// RunProgram parses a command line and runs its command: what convtune and convtune-fleet
// have in common.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/app/command.h"
#include "client/cli/app/context.h"
#include "client/cli/output/io.h"

namespace CLI {
class App;
}

namespace convtune::cli::app {

// What is a program's own.
struct Program {
  std::string name;
  std::string description;
  std::string footer;  // of its help
  // Adds the options that all commands have, in the group kCommonOptions, to the root of the tree.
  std::function<void(CLI::App&)> register_options;
  // Adds the commands to it.
  std::function<std::vector<std::unique_ptr<Command>>(CLI::App&)> register_commands;
  // Returns what the options and the environment say, once they are parsed.
  std::function<absl::StatusOr<Settings>()> settings;
  // Says the error of a command.
  std::function<ExitCode(Context&, const absl::Status&)> fail;
};

// Returns the exit code. `arguments` are without the program's name. Has --help, --version,
// --json and --csv besides.
ExitCode RunProgram(const Program& program, const std::vector<std::string>& arguments,
                    output::Io& io);

}  // namespace convtune::cli::app
