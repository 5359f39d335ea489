#include <CLI/CLI.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/cli/app/command.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

class DeleteCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    problems_.Register(
        *AddVerb(root, "delete", "forget the tunings of problems; pins stay", Rows::kNo));
  }

  absl::StatusOr<ExitCode> Run(Context& context) override {
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    // Doubles count once, so that what is missing can be told.
    std::vector<ProblemRow> rows;
    std::set<std::string> seen;
    for (const ProblemRow& row : batch.rows) {
      if (seen.insert(row.problem.ToText()).second) rows.push_back(row);
    }
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    int64_t deleted = 0;
    ExitCode code = batch.code;
    for (const auto& [first, last] : SplitIntoRequests(rows)) {
      v1::DeleteTuningRequest request;
      request.set_environment(context.settings().environment);
      for (size_t i = first; i < last; ++i) {
        request.add_problems()->set_text(rows[i].problem.ToText());
      }
      const auto response = client->DeleteTuning(request);
      if (!response.ok()) {
        code = Worse(code, context.Fail(response.status()));
        break;
      }
      deleted += response->deleted_count();
    }
    if (deleted < static_cast<int64_t>(rows.size())) code = Worse(code, ExitCode::kMiss);
    context.PrintJson(JsonObject().Add("deleted", deleted).Add("asked", rows.size()).Take());
    context.Say(absl::StrCat("deleted ", deleted, " of ", rows.size(), " tunings"));
    return code;
  }

 private:
  ProblemArgs problems_;
};

}  // namespace

std::unique_ptr<Command> NewDeleteCommand() { return std::make_unique<DeleteCommand>(); }

}  // namespace convtune::cli
