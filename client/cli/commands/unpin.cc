#include <CLI/CLI.hpp>

#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class UnpinCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "unpin", "end a pin", app::Rows::kNo);
    problem_.RegisterOne(*app);
    app->add_option("--fleet-pin", fleet_pin_,
                    "number of a fleet pin; only after this node left the fleet");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    v1::UnpinRequest request;
    request.set_environment(context.settings().environment);
    request.mutable_problem()->set_text(problem.ToText());
    request.set_fleet_pin(fleet_pin_);
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto response, client->Call<v1::UnpinResponse>(request));
    context.PrintJson({{"unpinned", problem.ToText()}});
    context.Say("unpinned " + input::ShortProblem(problem.ToText()));
    return app::ExitCode::kDone;
  }

 private:
  input::ProblemArgs problem_;
  int64_t fleet_pin_ = 0;
};

}  // namespace

std::unique_ptr<app::Command> NewUnpinCommand() { return std::make_unique<UnpinCommand>(); }

}  // namespace convtune::cli::commands
