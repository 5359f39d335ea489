#include "client/cli/cli.h"

#include "client/cli/app/program.h"
#include "client/cli/commands/commands.h"

namespace convtune::cli {

int RunCli(const std::vector<std::string>& arguments, output::Io& io) {
  app::SettingFlags flags;
  app::Program program;
  program.name = "convtune";
  program.description =
      "convtune: finds the fastest cuDNN algorithm of a convolution once and keeps it";
  program.footer =
      "Exit codes: 0 done, 1 failed, 2 usage or an invalid problem, 3 a miss or not found,\n"
      "4 daemon out of reach. `convtune COMMAND --help` says more.";
  program.register_options = [&](CLI::App& root) { flags.Register(root); };
  program.register_commands = commands::RegisterCommands;
  program.settings = [&] { return app::Settings::Resolve(flags, io); };
  program.fail = [](app::Context& context, const absl::Status& status) {
    return context.Fail(status);
  };
  return static_cast<int>(app::RunProgram(program, arguments, io));
}

}  // namespace convtune::cli
