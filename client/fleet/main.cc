// convtune-fleet: the agent beside a daemon, and the fleet's commands.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "client/cli/app/program.h"
#include "client/fleet/commands.h"

int main(int argc, char** argv) {
  using namespace convtune;  // NOLINT
  fleet::PostgresFlags flags;
  cli::app::Program program;
  program.name = "convtune-fleet";
  program.description = "convtune-fleet: tuning shared between nodes, through PostgreSQL";
  program.footer =
      "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 PostgreSQL out of reach,\n"
      "5 living nodes have not heeded the decision in time (--wait).\n"
      "`convtune-fleet COMMAND --help` says more.";
  program.register_options = [&](CLI::App& root) { flags.Register(root); };
  program.register_commands = [&](CLI::App& root) {
    return fleet::RegisterFleetCommands(flags, root);
  };
  program.settings = [] { return cli::app::Settings(); };
  program.fail = fleet::FailFleet;
  try {
    cli::output::Io io = cli::output::TerminalIo();
    return cli::output::EndOutput(
        static_cast<int>(cli::app::RunProgram(program, {argv + 1, argv + argc}, io)));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(cli::app::ExitCode::kFailed);
  }
}
