#include "client/cli/app/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace convtune::cli::app {

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

}  // namespace convtune::cli::app
