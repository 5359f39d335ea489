#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/constraint_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/enums.h"

namespace convtune::cli::commands {
namespace {

class GetCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "get", "the best algorithm of each problem", app::Rows::kYes);
    problems_.Register(*app);
    constraints_.Register(*app);
    app->add_option("--on-miss", on_miss_, "what a miss does")
        ->check(CLI::IsMember({"none", "heuristic", "enqueue", "tune"}))
        ->capture_default_str();
    app->add_option("--min-evidence", min_evidence_, "least evidence that counts as a hit")
        ->check(CLI::IsMember({"heuristic", "observed", "incomplete", "measured"}));
    app->add_option("--max-age", max_age_, "answers of tunings this old are misses, such as 30m");
    app->add_flag("--hints", hints_, "with a miss, show what another cuDNN version has");
    app::SayColumns(app, calls::AnswerFields({}, {}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    v1::BatchGetRequest request;
    ASSIGN_OR_RETURN(auto constraints, constraints_.ToProto());
    *request.mutable_constraints() = std::move(constraints);
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    request.set_environment(context.settings().environment);
    v1::OnMiss on_miss{};
    v1::OnMiss_Parse("ON_MISS_" + absl::AsciiStrToUpper(on_miss_), &on_miss);
    request.set_on_miss(on_miss);
    const Evidence least = ParseEvidence(min_evidence_).value_or(Evidence::kNone);
    request.set_min_evidence(static_cast<v1::Evidence>(least));
    if (!max_age_.empty()) {
      ASSIGN_OR_RETURN(const absl::Duration age, output::ParseTime("--max-age", max_age_));
      *request.mutable_max_age() = ToProto(age);
    }
    request.set_include_hints(hints_);

    const bool waits = on_miss_ == "heuristic" || on_miss_ == "tune";
    calls::BatchAnswers answers;
    if (!batch.rows.empty()) {
      answers =
          calls::BatchGetAll(context, request, batch.rows,
                             waits ? context.long_timeout() : context.settings().client.timeout);
    }
    calls::PrintAnswers(context, answers, batch.errors, nullptr);
    return app::Worse(batch.code, answers.code);
  }

 private:
  input::ProblemArgs problems_;
  input::ConstraintArgs constraints_;
  std::string on_miss_ = "none";
  std::string min_evidence_;
  std::string max_age_;
  bool hints_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewGetCommand() { return std::make_unique<GetCommand>(); }

}  // namespace convtune::cli::commands
