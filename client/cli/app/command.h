// A Command is a verb of the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/context.h"

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
  // Does what the options say, once they are parsed. An error is for Context::Fail.
  virtual absl::StatusOr<ExitCode> Run(Context& context) = 0;

  // True if the command line names this verb.
  bool chosen() const;
  // True if the output of what the command line names fits rows.
  bool prints_rows() const;
  // The verb, once it is registered.
  CLI::App& verb() { return *verb_; }

 protected:
  // Adds the verb.
  CLI::App* AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                    Rows rows);
  // Adds a verb that only has verbs below it.
  CLI::App* AddVerbGroup(CLI::App& root, const std::string& name, const std::string& description);
  // Adds a verb below that one.
  CLI::App* AddVerbBelow(CLI::App* verb, const std::string& name, const std::string& description,
                         Rows rows);

 private:
  CLI::App* verb_ = nullptr;
  std::vector<const CLI::App*> with_rows_;
};

// One of each, registered with `root`, which must not outlive them.
std::vector<std::unique_ptr<Command>> RegisterCommands(CLI::App& root);

std::unique_ptr<Command> NewGetCommand();
std::unique_ptr<Command> NewTuneCommand();
std::unique_ptr<Command> NewWarmCommand();
std::unique_ptr<Command> NewExplainCommand();
std::unique_ptr<Command> NewAdviseCommand();
std::unique_ptr<Command> NewLintCommand();
std::unique_ptr<Command> NewUpgradeCheckCommand();
std::unique_ptr<Command> NewListCommand();
std::unique_ptr<Command> NewPinCommand();
std::unique_ptr<Command> NewUnpinCommand();
std::unique_ptr<Command> NewBanCommand();
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
std::unique_ptr<Command> NewStatsCommand();
std::unique_ptr<Command> NewVersionCommand();
std::unique_ptr<Command> NewCompletionCommand();

}  // namespace convtune::cli
