#include "client/cli/app/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "client/cli/app/command.h"
#include "client/cli/app/usage.h"
#include "client/cli/output/table.h"

namespace convtune::cli {

int RunCli(const std::vector<std::string>& arguments, Io& io) {
  // Declared before the app, which refers to their options.
  const std::vector<std::unique_ptr<Command>> commands = AllCommands();
  CLI::App app("convtune: finds the fastest cuDNN algorithm of a convolution once and keeps it",
               "convtune");
  app.require_subcommand(1);
  app.set_version_flag("--version", "convtune " CONVTUNE_VERSION);
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 usage or an invalid problem, 3 a miss or not found,\n"
      "4 daemon out of reach. `convtune COMMAND --help` says more.");
  for (const auto& command : commands) command->Register(app);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error, io.out, io.err);
      return static_cast<int>(ExitCode::kDone);
    }
    io.err << Paint("error:", Color::kRed, WantsColor(io, io.err_is_terminal)) << " "
           << UsageError(app, error) << "\nRun with --help for more information.\n";
    return static_cast<int>(ExitCode::kUsage);
  }
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [](const auto& candidate) { return candidate->chosen(); });
  auto settings = Settings::Resolve((*command)->flags(), io);
  Context context(io, settings.ok() ? *settings : Settings(), (*command)->format(), app);
  if (!settings.ok()) return static_cast<int>(context.Fail(settings.status()));
  return static_cast<int>((*command)->Run(context));
}

}  // namespace convtune::cli
