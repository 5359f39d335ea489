#include "client/cli/app/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/output/fields.h"
#include "proto/base/variables.h"

namespace convtune::cli::app {
namespace {

// One sentence, without "error: ", for what `root` made of the arguments: the
// parser's own, but for a command that there is not, and one that is missing.
std::string UsageError(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* reached = &root;
  std::string words = root.get_name();
  for (auto chosen = root.get_subcommands(); !chosen.empty(); chosen = reached->get_subcommands()) {
    reached = chosen.front();
    absl::StrAppend(&words, " ", reached->get_name());
  }
  if (reached->get_require_subcommand_min() == 0) return error.what();
  if (const std::vector<std::string> unknown = reached->remaining(); !unknown.empty()) {
    return absl::StrCat("'", unknown.front(), "' is no command that there is");
  }
  if (reached == &root) return error.what();
  const auto append = [](std::string* out, const CLI::App* command) {
    out->append(command->get_name());
  };
  return absl::StrCat(words, " needs one of ",
                      absl::StrJoin(reached->get_subcommands(nullptr), ", ", append));
}

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

bool Command::chosen() const { return verb_ != nullptr && verb_->parsed(); }

bool Command::prints_rows() const {
  return std::ranges::any_of(
      parts_, [](const Part& part) { return part.prints_rows && part.app->parsed(); });
}

absl::StatusOr<ExitCode> Command::RunChosen(Context& context) {
  for (const Part& part : parts_) {
    if (part.run && part.app->parsed()) return part.run(context);
  }
  return Run(context);
}

CLI::App* Command::AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                           const output::Fields& columns) {
  verb_ = AddVerbBelow(&root, name, description, columns);
  return verb_;
}

CLI::App* Command::AddVerbGroup(CLI::App& root, const std::string& name,
                                const std::string& description) {
  verb_ = root.add_subcommand(name, description);
  verb_->require_subcommand(1);
  return verb_;
}

CLI::App* Command::AddVerbBelow(CLI::App* verb, const std::string& name,
                                const std::string& description, const output::Fields& columns,
                                RunVerb run) {
  CLI::App* const app = verb->add_subcommand(name, description);
  parts_.push_back({app, !columns.empty(), std::move(run)});
  if (!columns.empty()) SayColumns(app, columns, "");
  return app;
}

void SayColumns(CLI::App* verb, const output::Fields& columns, const std::string& when) {
  const std::string names =
      absl::StrReplaceAll(output::CsvHeading(columns), {{",", ", "}, {"\n", ""}});
  const std::string& before = verb->get_footer();
  verb->footer(absl::StrCat(before, before.empty() ? "" : "\n", "CSV columns", when, ": ", names));
}

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
  Context context(io, settings.ok() ? *settings : Settings(), format);
  if (!(*command)->warns_itself()) {
    for (const std::string& warning : UnknownVariables()) {
      context.Say("warning: ", warning);
    }
  }
  if (csv && !(*command)->prints_rows()) {
    context.SayError("--csv: this command prints no rows");
    return ExitCode::kUsage;
  }
  if (!settings.ok() && (*command)->needs_settings()) {
    return program.fail(context, settings.status());
  }
  const absl::StatusOr<ExitCode> code = (*command)->RunChosen(context);
  return code.ok() ? *code : program.fail(context, code.status());
}

}  // namespace convtune::cli::app
