#include "client/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "client/cli/command.h"

namespace convtune {

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
  } catch (const CLI::RequiredError& error) {
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty()) {
      app.exit(error, io.out, io.err);
    } else {
      io.err << "'" << unknown[0] << "' is no command that there is; see --help\n";
    }
    return static_cast<int>(ExitCode::kUsage);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, io.out, io.err);
    return static_cast<int>(code == 0 ? ExitCode::kDone : ExitCode::kUsage);
  }
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [](const auto& candidate) { return candidate->chosen(); });
  auto settings = Settings::Resolve((*command)->flags(), io);
  Context context(io, settings.ok() ? *settings : Settings(), (*command)->format(), app);
  if (!settings.ok()) return static_cast<int>(context.Fail(settings.status()));
  return static_cast<int>((*command)->Run(context));
}

}  // namespace convtune
