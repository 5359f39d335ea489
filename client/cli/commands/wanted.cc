#include <CLI/CLI.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/units.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

// A daemon older than these two fields leaves both empty.
bool CanBeTunedHere(const v1::WantedProblem& problem) {
  return problem.can_be_tuned() || problem.environment_text().empty();
}

output::Fields WantedFields(const v1::WantedProblem& problem) {
  const bool here = CanBeTunedHere(problem);
  return {{"problem", "PROBLEM", input::ProblemValue(problem.problem_text())},
          // A name alone would not tell another version of cuDNN from the one that is here.
          {"environment", "ENVIRONMENT",
           output::Value(problem.environment())
               .Shown(here ? problem.environment() : problem.environment_text())},
          {"misses", "MISSES", problem.miss_count()},
          {"first_seen", "", output::FormatTimestamp(problem.first_seen_time())},
          {"last_seen", "LAST SEEN", output::FormatTimestamp(problem.last_seen_time())},
          {"attempts", "TRIED", problem.attempt_count()},
          {"last_error", "WHY NOT",
           output::Value(problem.last_error())
               .Shown(problem.last_error().empty() ? "-" : problem.last_error())},
          {"environment_text", "", problem.environment_text()},
          {"can_be_tuned", "", here}};
}

class WantedCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "wanted", "what programs asked for in vain, most wanted first",
                            app::Rows::kYes);
    app::SayColumns(app, WantedFields({}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    v1::ListWantedRequest request;
    request.set_environment(context.settings().environment);
    request.set_max_problems(10000);
    ASSIGN_OR_RETURN(const auto wanted,
                     client->CallPages<v1::ListWantedResponse>(request, request.max_problems()));
    context.PrintJson(wanted);
    context.PrintRows(wanted.wanted(), WantedFields);
    // CSV is for `convtune warm -`.
    if (context.format() != app::Format::kTable) return app::ExitCode::kDone;
    std::map<std::string, int> elsewhere;  // by the environment's text
    for (const v1::WantedProblem& problem : wanted.wanted()) {
      if (!CanBeTunedHere(problem)) ++elsewhere[problem.environment_text()];
    }
    int64_t left = wanted.wanted_count();
    std::string text = output::Counted(left, "problem") + " wanted";
    for (const auto& [environment, count] : elsewhere) {
      left -= count;
      absl::StrAppend(&text, "; ", count, " of them for ", environment,
                      ", which no device here has: tune them where one has it");
    }
    if (left > 0) {
      absl::StrAppend(&text, "; tune ", elsewhere.empty() ? "them" : "the others",
                      " with `convtune wanted --csv | convtune warm -`, "
                      "or start convtuned with --tune-wanted");
    }
    context.Say(text);
    return app::ExitCode::kDone;
  }
};

}  // namespace

std::unique_ptr<app::Command> NewWantedCommand() { return std::make_unique<WantedCommand>(); }

}  // namespace convtune::cli::commands
