#include "client/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "client/cli/app/command.h"
#include "client/cli/app/usage.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/table.h"

namespace convtune::cli {
namespace {

// A command's help ends with the options that all commands have.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_footer(const CLI::App* app) const override {
    if (app->get_parent() == nullptr) return Formatter::make_footer(app);
    return make_group(app::kCommonOptions, false, app::CommonOptionsOf(*app)).substr(1) + "\n" +
           Formatter::make_footer(app);
  }
};

}  // namespace

int RunCli(const std::vector<std::string>& arguments, output::Io& io) {
  // Declared before the root, which refers to their options.
  std::vector<std::unique_ptr<app::Command>> verbs;
  app::SettingFlags flags;
  bool json = false;
  bool csv = false;
  CLI::App root("convtune: finds the fastest cuDNN algorithm of a convolution once and keeps it",
                "convtune");
  root.require_subcommand(1);
  root.fallthrough();
  root.formatter(std::make_shared<HelpFormatter>());
  root.set_version_flag("--version", [&root] {
    if (!root.get_subcommands().empty()) {
      throw CLI::ValidationError(
          "--version", "must stand without a command; a program's own options belong behind --");
    }
    return std::string("convtune " CONVTUNE_VERSION);
  });
  root.footer(
      "Exit codes: 0 done, 1 failed, 2 usage or an invalid problem, 3 a miss or not found,\n"
      "4 daemon out of reach. `convtune COMMAND --help` says more.");
  flags.Register(root);
  CLI::Option* const as_json = root.add_flag("--json", json, "one JSON document");
  as_json->group(app::kCommonOptions);
  root.add_flag("--csv", csv, "rows of CSV, of commands that print rows")
      ->group(app::kCommonOptions)
      ->excludes(as_json);
  verbs = commands::RegisterCommands(root);
  try {
    root.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      root.exit(error, io.out, io.err);
      return static_cast<int>(app::ExitCode::kDone);
    }
    io.err << output::Paint("error:", output::Color::kRed,
                            output::WantsColor(io, io.err_is_terminal))
           << " " << app::UsageError(root, error) << "\nRun with --help for more information.\n";
    return static_cast<int>(app::ExitCode::kUsage);
  }
  const auto command = std::find_if(verbs.begin(), verbs.end(),
                                    [](const auto& candidate) { return candidate->chosen(); });
  auto settings = app::Settings::Resolve(flags, io);
  const app::Format format = csv    ? app::Format::kCsv
                             : json ? app::Format::kJson
                                    : app::Format::kTable;
  app::Context context(io, settings.ok() ? *settings : app::Settings(), format, root);
  if (csv && !(*command)->prints_rows()) {
    context.SayError("--csv: this command prints no rows");
    return static_cast<int>(app::ExitCode::kUsage);
  }
  if (!settings.ok()) return static_cast<int>(context.Fail(settings.status()));
  const absl::StatusOr<app::ExitCode> code = (*command)->Run(context);
  return static_cast<int>(code.ok() ? *code : context.Fail(code.status()));
}

}  // namespace convtune::cli
