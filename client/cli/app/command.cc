#include "client/cli/app/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

namespace convtune::cli {

bool Command::chosen() const { return verb_ != nullptr && verb_->parsed(); }

bool Command::prints_rows() const {
  return std::any_of(with_rows_.begin(), with_rows_.end(),
                     [](const CLI::App* app) { return app->parsed(); });
}

CLI::App* Command::AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                           Rows rows) {
  verb_ = AddVerbBelow(&root, name, description, rows);
  return verb_;
}

CLI::App* Command::AddVerbGroup(CLI::App& root, const std::string& name,
                                const std::string& description) {
  verb_ = root.add_subcommand(name, description);
  verb_->require_subcommand(1);
  return verb_;
}

CLI::App* Command::AddVerbBelow(CLI::App* verb, const std::string& name,
                                const std::string& description, Rows rows) {
  CLI::App* app = verb->add_subcommand(name, description);
  if (rows == Rows::kYes) with_rows_.push_back(app);
  return app;
}

std::vector<std::unique_ptr<Command>> RegisterCommands(CLI::App& root) {
  using Make = std::unique_ptr<Command> (*)();
  const std::pair<const char*, std::vector<Make>> groups[] = {
      {"Ask",
       {NewGetCommand, NewExplainCommand, NewAdviseCommand, NewLintCommand, NewUpgradeCheckCommand,
        NewListCommand, NewReportCommand, NewEnvironmentsCommand}},
      {"Tune",
       {NewTuneCommand, NewWarmCommand, NewJobsCommand, NewPinCommand, NewUnpinCommand,
        NewBanCommand, NewDeleteCommand}},
      {"Serve programs", {NewRunCommand, NewReleaseCommand, NewWantedCommand}},
      {"Move",
       {NewExportCommand, NewImportCommand, NewVerifyCommand, NewMergeCommand, NewFleetCommand}},
      {"Look after",
       {NewStatsCommand, NewDoctorCommand, NewDbCommand, NewVersionCommand, NewCompletionCommand}},
  };
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto& [title, makers] : groups) {
    for (const Make make : makers) {
      commands.push_back(make());
      commands.back()->Register(root);
      commands.back()->verb().group(title);
    }
  }
  return commands;
}

}  // namespace convtune::cli
