#include "client/cli/app/command.h"

#include <CLI/CLI.hpp>

namespace convtune::cli {

bool Command::chosen() const { return verb_ != nullptr && verb_->parsed(); }

CLI::App* Command::AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                           Rows rows) {
  verb_ = root.add_subcommand(name, description);
  AddCommonOptions(*verb_, rows);
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
  AddCommonOptions(*app, rows);
  return app;
}

void Command::AddCommonOptions(CLI::App& app, Rows rows) {
  flags_.Register(app);
  CLI::Option* json = app.add_flag("--json", json_, "one JSON document");
  json->group("Common options");
  if (rows == Rows::kYes) {
    app.add_flag("--csv", csv_, "rows of CSV")->group("Common options")->excludes(json);
  }
}

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(NewGetCommand());
  commands.push_back(NewTuneCommand());
  commands.push_back(NewWarmCommand());
  commands.push_back(NewExplainCommand());
  commands.push_back(NewAdviseCommand());
  commands.push_back(NewListCommand());
  commands.push_back(NewPinCommand());
  commands.push_back(NewUnpinCommand());
  commands.push_back(NewDeleteCommand());
  commands.push_back(NewExportCommand());
  commands.push_back(NewImportCommand());
  commands.push_back(NewVerifyCommand());
  commands.push_back(NewMergeCommand());
  commands.push_back(NewReportCommand());
  commands.push_back(NewEnvironmentsCommand());
  commands.push_back(NewJobsCommand());
  commands.push_back(NewReleaseCommand());
  commands.push_back(NewWantedCommand());
  commands.push_back(NewRunCommand());
  commands.push_back(NewFleetCommand());
  commands.push_back(NewDbCommand());
  commands.push_back(NewDoctorCommand());
  commands.push_back(NewVersionCommand());
  commands.push_back(NewCompletionCommand());
  return commands;
}

}  // namespace convtune::cli
