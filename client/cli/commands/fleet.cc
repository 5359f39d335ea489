#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/app/child_program.h"
#include "client/cli/commands/commands.h"

namespace convtune::cli::commands {
namespace {

constexpr char kProgram[] = "convtune-fleet";

// Becomes the program that has the fleet's commands: it alone knows PostgreSQL.
class FleetCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerbGroup(
        root, "fleet", "the fleet's commands: everything behind it is convtune-fleet's");
    app->prefix_command();
    app->fallthrough(false);
    app->require_subcommand(0);
    app->set_help_flag();
    app_ = app;
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::error_code error;
    const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::string beside = own.parent_path() / kProgram;
    std::vector<std::string> words = app_->remaining();
    if (words.empty()) words.emplace_back("--help");
    words.insert(words.begin(), kProgram);
    for (const CLI::Option* option : app::CommonOptionsOf(*app_)) {  // in front of the command
      if (option->count() == 0) continue;
      words.push_back(option->get_name());
      if (option->get_expected_max() > 0) words.push_back(option->results().front());
    }
    const std::vector<char*> argv = app::PointersTo(&words);
    if (access(beside.c_str(), X_OK) == 0) {
      execv(beside.c_str(), argv.data());
    } else {
      execvp(kProgram, argv.data());
    }
    context.SayError(absl::StrCat(kProgram, ": ", std::strerror(errno),
                                  ": it is neither beside convtune nor in PATH (the package "
                                  "convtune-fleet has it; in a checkout with libpq: cmake --build "
                                  "build --target convtune-fleet)"));
    return app::ExitCode::kFailed;
  }

 private:
  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<app::Command> NewFleetCommand() { return std::make_unique<FleetCommand>(); }

}  // namespace convtune::cli::commands
