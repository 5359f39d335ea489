#include "client/cli/app/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convtune::cli::app {
namespace {

bool NeedsCommand(const CLI::App& app) { return app.get_require_subcommand_min() > 0; }

// The command that was reached, how it is called, and what was in front of it
// that nothing knew.
struct Reached {
  const CLI::App* app;
  std::string words;
  std::vector<std::string> before;
};

Reached FindReached(const CLI::App& root) {
  Reached reached{&root, root.get_name(), {}};
  while (true) {
    const std::vector<CLI::App*> chosen = reached.app->get_subcommands();
    if (chosen.empty()) return reached;
    for (const std::string& word : reached.app->remaining()) reached.before.push_back(word);
    reached.app = chosen.front();
    absl::StrAppend(&reached.words, " ", reached.app->get_name());
  }
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

bool Has(const CLI::App& app, const std::string& option) {
  if (app.get_option_no_throw(option) != nullptr) return true;
  const auto commands = CommandsOf(app);
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return Has(*command, option); });
}

// The first option among `words` that `app` or a command below it has.
std::string KnownOption(const CLI::App& app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    std::string name = word.substr(0, word.find('='));
    if (absl::StartsWith(name, "--") && name.size() > 2 && Has(app, name)) return name;
  }
  return "";
}

std::string Names(const std::vector<const CLI::App*>& commands) {
  return absl::StrJoin(commands, ", ", [](std::string* out, const CLI::App* command) {
    out->append(command->get_name());
  });
}

}  // namespace

std::string UsageError(const CLI::App& root, const CLI::ParseError& error) {
  const Reached reached = FindReached(root);
  if (NeedsCommand(*reached.app)) {
    const std::vector<std::string> words = reached.app->remaining();
    const std::string option = KnownOption(*reached.app, words);
    if (!option.empty()) {
      return absl::StrCat(option, " belongs after the command: ", reached.words, " COMMAND ",
                          option, " ...");
    }
    if (!words.empty()) {
      return absl::StrCat("'", words.front(), "' is no command that there is");
    }
    if (reached.app != &root) {
      return absl::StrCat(reached.words, " needs one of ", Names(CommandsOf(*reached.app)));
    }
  } else {
    const std::string option = KnownOption(*reached.app, reached.before);
    if (!option.empty()) {
      return absl::StrCat(option, " belongs after the command: ", reached.words, " ", option,
                          " ...");
    }
  }
  return error.what();
}

}  // namespace convtune::cli::app
