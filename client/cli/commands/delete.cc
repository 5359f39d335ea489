#include <CLI/CLI.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class DeleteCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    problems_.Register(
        *AddVerb(root, "delete", "forget the tunings of problems; pins stay", app::Rows::kNo));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    // Doubles count once, so that what is missing can be told.
    std::vector<ProblemRow> rows;
    std::set<std::string> seen;
    for (const ProblemRow& row : batch.rows) {
      if (seen.insert(row.problem.ToText()).second) rows.push_back(row);
    }
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    int64_t deleted = 0;
    app::ExitCode code = batch.code;
    for (const auto& [first, last] : calls::SplitIntoRequests(rows)) {
      v1::DeleteTuningRequest request;
      request.set_environment(context.settings().environment);
      for (size_t i = first; i < last; ++i) {
        request.add_problems()->set_text(rows[i].problem.ToText());
      }
      const auto response = client->Call<v1::DeleteTuningResponse>(request);
      if (!response.ok()) {
        code = app::Worse(code, context.Fail(response.status()));
        break;
      }
      deleted += response->deleted_count();
    }
    if (deleted < static_cast<int64_t>(rows.size())) code = app::Worse(code, app::ExitCode::kMiss);
    context.PrintJson({{"deleted", deleted}, {"asked", rows.size()}});
    context.Say(absl::StrCat("deleted ", deleted, " of ", rows.size(), " tunings"));
    return code;
  }

 private:
  input::ProblemArgs problems_;
};

}  // namespace

std::unique_ptr<app::Command> NewDeleteCommand() { return std::make_unique<DeleteCommand>(); }

}  // namespace convtune::cli::commands
