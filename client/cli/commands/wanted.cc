#include <CLI/CLI.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "client/cpp/release_client.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class WantedCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "wanted", "what programs asked for in vain, most wanted first", app::Rows::kYes);
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, client::ReleaseClient::Create(context.settings().client));
    v1::ListWantedRequest request;
    request.set_environment(context.settings().environment);
    request.set_max_problems(10000);
    ASSIGN_OR_RETURN(const auto wanted, client->ListWanted(request));
    if (context.format() == app::Format::kJson) {
      context.PrintJson(output::JsonMessage(wanted));
      return app::ExitCode::kDone;
    }
    context.PrintCsv({"problem", "environment", "misses", "first_seen", "last_seen", "attempts",
                      "last_error", "environment_text", "can_be_tuned"});
    output::Table table({{"PROBLEM"},
                         {"ENVIRONMENT"},
                         {"MISSES", output::Align::kRight},
                         {"LAST SEEN"},
                         {"TRIED", output::Align::kRight},
                         {"WHY NOT"}});
    std::map<std::string, int> elsewhere;  // by the environment's text
    for (const v1::WantedProblem& problem : wanted.wanted()) {
      // A daemon older than these two fields leaves both empty.
      const bool here = problem.can_be_tuned() || problem.environment_text().empty();
      if (!here) ++elsewhere[problem.environment_text()];
      context.PrintCsv(
          {problem.problem_text(), problem.environment(), absl::StrCat(problem.miss_count()),
           output::FormatTimestamp(problem.first_seen_time()),
           output::FormatTimestamp(problem.last_seen_time()), absl::StrCat(problem.attempt_count()),
           problem.last_error(), problem.environment_text(), here ? "true" : "false"});
      // A name alone would not tell another version of cuDNN from the one that is here.
      table.Add({input::ShortProblem(problem.problem_text()),
                 here ? problem.environment() : problem.environment_text(),
                 absl::StrCat(problem.miss_count()),
                 output::FormatTimestamp(problem.last_seen_time()),
                 absl::StrCat(problem.attempt_count()),
                 problem.last_error().empty() ? "-" : problem.last_error()});
    }
    context.PrintTable(table);
    if (context.format() == app::Format::kCsv) {
      return app::ExitCode::kDone;  // for `convtune warm -`
    }
    int64_t left = wanted.wanted_count();
    std::string text = Problems(left) + " wanted";
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

 private:
  static std::string Problems(int64_t count) {
    return absl::StrCat(count, count == 1 ? " problem" : " problems");
  }
};

}  // namespace

std::unique_ptr<app::Command> NewWantedCommand() { return std::make_unique<WantedCommand>(); }

}  // namespace convtune::cli::commands
