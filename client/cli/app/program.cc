#include "client/cli/app/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/app/usage.h"
#include "client/cli/output/table.h"

namespace convtune::cli::app {
namespace {

// A command's help ends with the options that all commands have.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_footer(const CLI::App* app) const override {
    if (app->get_parent() == nullptr) return Formatter::make_footer(app);
    return make_group(kCommonOptions, false, CommonOptionsOf(*app)).substr(1) + "\n" +
           Formatter::make_footer(app);
  }
};

}  // namespace

ExitCode RunProgram(const Program& program, const std::vector<std::string>& arguments,
                    output::Io& io) {
  // Declared before the root, which refers to their options.
  std::vector<std::unique_ptr<Command>> verbs;
  bool json = false;
  bool csv = false;
  CLI::App root(program.description, program.name);
  root.require_subcommand(1);
  root.fallthrough();
  root.formatter(std::make_shared<HelpFormatter>());
  root.set_version_flag("--version", [&] {
    if (!root.get_subcommands().empty()) {
      throw CLI::ValidationError(
          "--version", "must stand without a command; a program's own options belong behind --");
    }
    return absl::StrCat(program.name, " " CONVTUNE_VERSION);
  });
  root.footer(program.footer);
  program.register_options(root);
  CLI::Option* const as_json = root.add_flag("--json", json, "one JSON document");
  as_json->group(kCommonOptions);
  root.add_flag("--csv", csv, "rows of CSV, of commands that print rows")
      ->group(kCommonOptions)
      ->excludes(as_json);
  verbs = program.register_commands(root);
  try {
    root.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      root.exit(error, io.out, io.err);
      return ExitCode::kDone;
    }
    io.err << output::Paint("error:", output::Color::kRed,
                            output::WantsColor(io, io.err_is_terminal))
           << " " << UsageError(root, error) << "\nRun with --help for more information.\n";
    return ExitCode::kUsage;
  }
  const auto command = std::find_if(verbs.begin(), verbs.end(),
                                    [](const auto& candidate) { return candidate->chosen(); });
  const absl::StatusOr<Settings> settings = program.settings();
  const Format format = csv ? Format::kCsv : json ? Format::kJson : Format::kTable;
  Context context(io, settings.ok() ? *settings : Settings(), format, root);
  if (csv && !(*command)->prints_rows()) {
    context.SayError("--csv: this command prints no rows");
    return ExitCode::kUsage;
  }
  if (!settings.ok() && (*command)->needs_settings()) {
    return program.fail(context, settings.status());
  }
  const absl::StatusOr<ExitCode> code = (*command)->Run(context);
  return code.ok() ? *code : program.fail(context, code.status());
}

}  // namespace convtune::cli::app
