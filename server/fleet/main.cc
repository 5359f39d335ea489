// convtune-fleet: the agent beside a daemon, and the fleet's commands.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "server/fleet/commands.h"

namespace {

convtune::cli::app::ExitCode Run(int argc, char** argv) {
  CLI::App app{"convtune-fleet: tuning shared between nodes, through PostgreSQL"};
  app.set_version_flag("--version", CONVTUNE_VERSION);
  app.require_subcommand(1);
  const auto commands = convtune::fleet::AllFleetCommands();
  for (const auto& command : commands) command->Register(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return convtune::cli::app::ExitCode::kDone;
    }
    std::cerr << "error: " << error.what() << "\nRun with --help for more information.\n";
    return convtune::cli::app::ExitCode::kUsage;
  }
  for (const auto& command : commands) {
    if (const auto code = command->RunIfChosen()) return *code;
  }
  return convtune::cli::app::ExitCode::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(Run(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(convtune::cli::app::ExitCode::kFailed);
  }
}
