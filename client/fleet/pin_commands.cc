// The verbs pin, unpin and pins.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/input/options.h"
#include "client/cli/output/units.h"
#include "client/fleet/commands.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::fleet {
namespace {

// What a daemon takes at most for a pin (server/rpc/messages/request_validator.cc).
constexpr absl::Duration kMostTtl = absl::Hours(24 * 365 * 100);

cli::output::Fields PinFields(const db::fleet::FleetPin& pin) {
  std::optional<double> seconds;
  if (pin.left.has_value()) seconds = absl::ToDoubleSeconds(*pin.left);
  return {{"", "PIN", absl::StrCat(pin.pin_id)},
          {"pin", "", pin.pin_id},
          {"problem", "PROBLEM", pin.problem_text},
          {"environment", "ENVIRONMENT", pin.environment_text},
          {"candidate", "CANDIDATE", pin.candidate},
          {"seconds_left", "LEFT",
           cli::output::Value(seconds).Shown(
               pin.left.has_value() ? cli::output::FormatAge(*pin.left) : "-")},
          {"author", "AUTHOR", pin.author},
          {"reason", "REASON", pin.reason},
          {"login", "", pin.login}};
}

// The problem of a pin.
struct PinArgs {
  std::string problem;
  std::string environment;

  void Register(CLI::App& app) {
    app.add_option("PROBLEM", problem)->required();
    app.add_option("--environment", environment, "name or text")->required();
  }
};

class FleetPinCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "pin", "make one candidate every node's answer to a problem");
    args_.Register(*app);
    app->add_option("CANDIDATE", candidate_, "its text form")->required();
    cli::input::AddTime(
        *app, "--ttl", "how long, for example 24h; without it until unpin",
        [this](absl::Duration time) { left_ = time; }, absl::Seconds(1), kMostTtl);
    decision_.Register(*app);
    decision_.RegisterSign(*app);
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(args_.problem));
    ASSIGN_OR_RETURN(const CandidateId candidate, ParseCandidateId(candidate_));
    ASSIGN_OR_RETURN(const db::fleet::FleetDecision decision, decision_.Read());
    db::fleet::FleetPin pin;
    pin.left = left_;
    pin.problem_text = problem.ToText();
    pin.candidate = ToText(candidate);
    pin.author = decision.author;
    pin.reason = decision.reason;
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(pin.environment_text,
                     db::fleet::ResolveFleetEnvironment(*postgres, args_.environment));
    RETURN_IF_ERROR(PoolEverything(context, *postgres));
    db::fleet::FleetNames names(postgres.get());
    ASSIGN_OR_RETURN(const int64_t id, db::fleet::PutFleetPin(*postgres, names, pin, decision.key));
    return PrintOutcome(context, {{"pin", id}}, absl::StrCat("pin ", id));
  }

 private:
  PinArgs args_;
  DecisionArgs decision_;
  std::string candidate_;
  std::optional<absl::Duration> left_;
};

class FleetUnpinCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerb(root, "unpin", "end a pin");
    args_.Register(*app);
    decision_.RegisterAuthor(*app);
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(args_.problem));
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::string environment,
                     db::fleet::ResolveFleetEnvironment(*postgres, args_.environment));
    RETURN_IF_ERROR(
        db::fleet::EndFleetPin(*postgres, environment, problem.ToText(), decision_.author));
    context.PrintJson({{"unpinned", problem.ToText()}, {"environment", environment}});
    return cli::app::ExitCode::kDone;
  }

 private:
  PinArgs args_;
  DecisionArgs decision_;
};

class FleetPinsCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override { AddVerb(root, "pins", "every pin", PinFields({})); }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetPin> pins,
                     db::fleet::ListFleetPins(*postgres));
    cli::app::ExitCode code = PrintFleetRows(context, pins, PinFields, "nothing is pinned");
    for (const db::fleet::FleetPin& pin : pins) {
      if (pin.error.empty()) continue;
      context.SayError("pin ", pin.pin_id, ": ", pin.error);
      code = cli::app::ExitCode::kFailed;
    }
    return code;
  }
};

}  // namespace

std::unique_ptr<cli::app::Command> NewFleetPinCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetPinCommand>(flags);
}
std::unique_ptr<cli::app::Command> NewFleetUnpinCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetUnpinCommand>(flags);
}
std::unique_ptr<cli::app::Command> NewFleetPinsCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetPinsCommand>(flags);
}

}  // namespace convtune::fleet
