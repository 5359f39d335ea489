#include "client/cli/commands/completion_script.h"

#include <CLI/CLI.hpp>
#include <ostream>

#include "client/cli/app/command.h"

namespace convtune::cli {
namespace {

class CompletionCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "completion", "script that completes this program's words", Rows::kNo);
    app->add_option("shell", shell_, "which shell")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  }

  absl::StatusOr<ExitCode> Run(Context& context) override {
    std::string script = FishCompletion(context.root());
    if (shell_ == "bash") script = BashCompletion(context.root());
    if (shell_ == "zsh") script = ZshCompletion(context.root());
    context.io().out << script;
    return ExitCode::kDone;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> NewCompletionCommand() { return std::make_unique<CompletionCommand>(); }

}  // namespace convtune::cli
