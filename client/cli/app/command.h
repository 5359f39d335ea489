// A Command is a verb of the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/cli/app/context.h"
#include "client/cli/app/settings.h"

namespace CLI {
class App;
}

namespace convtune::cli {

// Whether a command's output fits rows, and so CSV.
enum class Rows { kNo, kYes };

// Not thread-safe.
class Command {
 public:
  virtual ~Command() = default;

  // Adds the verb and its options to `root`, which must not outlive *this.
  virtual void Register(CLI::App& root) = 0;
  // Does what the options say, once they are parsed.
  virtual ExitCode Run(Context& context) = 0;

  // True if the command line names this verb.
  bool chosen() const;
  const SettingFlags& flags() const { return flags_; }
  Format format() const { return csv_ ? Format::kCsv : json_ ? Format::kJson : Format::kTable; }

 protected:
  // Adds the verb, with the options that every command has.
  CLI::App* AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                    Rows rows);
  // Adds a verb that only has verbs below it.
  CLI::App* AddVerbGroup(CLI::App& root, const std::string& name, const std::string& description);
  // Adds a verb below that one, with the options that every command has.
  CLI::App* AddVerbBelow(CLI::App* verb, const std::string& name, const std::string& description,
                         Rows rows);

 private:
  void AddCommonOptions(CLI::App& app, Rows rows);

  CLI::App* verb_ = nullptr;
  SettingFlags flags_;
  bool json_ = false;
  bool csv_ = false;
};

// One of each, in the order of the help text.
std::vector<std::unique_ptr<Command>> AllCommands();

std::unique_ptr<Command> NewGetCommand();
std::unique_ptr<Command> NewTuneCommand();
std::unique_ptr<Command> NewWarmCommand();
std::unique_ptr<Command> NewExplainCommand();
std::unique_ptr<Command> NewAdviseCommand();
std::unique_ptr<Command> NewListCommand();
std::unique_ptr<Command> NewPinCommand();
std::unique_ptr<Command> NewUnpinCommand();
std::unique_ptr<Command> NewDeleteCommand();
std::unique_ptr<Command> NewExportCommand();
std::unique_ptr<Command> NewImportCommand();
std::unique_ptr<Command> NewVerifyCommand();
std::unique_ptr<Command> NewMergeCommand();
std::unique_ptr<Command> NewReportCommand();
std::unique_ptr<Command> NewEnvironmentsCommand();
std::unique_ptr<Command> NewJobsCommand();
std::unique_ptr<Command> NewReleaseCommand();
std::unique_ptr<Command> NewWantedCommand();
std::unique_ptr<Command> NewRunCommand();
// Becomes convtune-fleet.
std::unique_ptr<Command> NewFleetCommand();
std::unique_ptr<Command> NewDbCommand();
std::unique_ptr<Command> NewDoctorCommand();
std::unique_ptr<Command> NewVersionCommand();
std::unique_ptr<Command> NewCompletionCommand();

}  // namespace convtune::cli
