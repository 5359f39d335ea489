#include "client/cli/commands/commands.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace convtune::cli::commands {

std::vector<std::unique_ptr<app::Command>> RegisterCommands(CLI::App& root) {
  using Make = std::unique_ptr<app::Command> (*)();
  const std::pair<const char*, std::vector<Make>> groups[] = {
      {"Ask",
       {NewGetCommand, explain::NewExplainCommand, advise::NewAdviseCommand, lint::NewLintCommand,
        upgrade::NewUpgradeCheckCommand, NewListCommand, report::NewReportCommand,
        NewEnvironmentsCommand}},
      {"Tune",
       {NewTuneCommand, warm::NewWarmCommand, NewJobsCommand, NewPinCommand, NewUnpinCommand,
        ban::NewBanCommand, NewDeleteCommand}},
      {"Serve programs", {run::NewRunCommand, NewReleaseCommand, NewWantedCommand}},
      {"Move",
       {NewExportCommand, NewImportCommand, NewVerifyCommand, NewMergeCommand, NewFleetCommand}},
      {"Look after",
       {NewStatsCommand, doctor::NewDoctorCommand, NewDbCommand, NewVersionCommand,
        NewCompletionCommand}},
  };
  std::vector<std::unique_ptr<app::Command>> commands;
  for (const auto& [title, makers] : groups) {
    for (const Make make : makers) {
      commands.push_back(make());
      commands.back()->Register(root);
      commands.back()->verb().group(title);
    }
  }
  return commands;
}

}  // namespace convtune::cli::commands
