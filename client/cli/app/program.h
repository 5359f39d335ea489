// A Command is a verb of a program, and RunProgram parses a command line and runs its command:
// what convtune and convtune-fleet have in common.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/app/context.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/io.h"

namespace CLI {
class App;
}

namespace convtune::cli::app {

// Not thread-safe.
class Command {
 public:
  // Does what a verb's options say, once they are parsed. An error is for Context::Fail.
  using RunVerb = std::function<absl::StatusOr<ExitCode>(Context&)>;

  virtual ~Command() = default;

  // Adds the verb and its options to `root`, which must not outlive *this.
  virtual void Register(CLI::App& root) = 0;
  // Runs the class's own verb, and those below it that were added without a RunVerb. An error is
  // for Context::Fail.
  virtual absl::StatusOr<ExitCode> Run(Context&) { return ExitCode::kUsage; }
  // False for a verb that asks no daemon: it runs also where the settings are wrong.
  virtual bool needs_settings() const { return true; }

  // True for a verb that says the warnings of UnknownVariables itself: in its log, or as the
  // program that it becomes.
  virtual bool warns_itself() const { return false; }

  // True if the command line names this verb.
  bool chosen() const;
  // True if the output of what the command line names fits rows.
  bool prints_rows() const;
  // Runs what the command line names: the verb below, or this one.
  absl::StatusOr<ExitCode> RunChosen(Context& context);
  // The verb, once it is registered.
  CLI::App& verb() { return *verb_; }

 protected:
  // Adds the verb. `columns` are those of the rows that it prints, as the fields of any row: its
  // help names them. Empty: it prints no rows, and --csv is refused.
  CLI::App* AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                    const output::Fields& columns = {});
  // Adds a verb that only has verbs below it.
  CLI::App* AddVerbGroup(CLI::App& root, const std::string& name, const std::string& description);
  // Adds a verb below that one.
  CLI::App* AddVerbBelow(CLI::App* verb, const std::string& name, const std::string& description,
                         const output::Fields& columns = {}, RunVerb run = nullptr);

 private:
  struct Part {
    CLI::App* app;
    bool prints_rows;
    RunVerb run;
  };

  CLI::App* verb_ = nullptr;
  std::vector<Part> parts_;
};

// Makes a verb.
using NewVerb = std::unique_ptr<Command>();

// Has the help of a verb that prints other rows with an option name their columns, too. `when` says
// with which, " with --pins".
void SayColumns(CLI::App* verb, const output::Fields& columns, const std::string& when);

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
