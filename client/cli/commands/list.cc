#include <CLI/CLI.hpp>

#include "client/cli/calls/answer_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

output::Fields TuningFields(const v1::Tuning& tuning) {
  return {{"problem", "PROBLEM", input::ProblemValue(tuning.problem_text())},
          {"environment", "ENVIRONMENT", tuning.environment().name()},
          {"winner", "", tuning.winner()},
          {"evidence", "EVIDENCE",
           calls::EvidenceValue(tuning.evidence(), tuning.environment().name())},
          {"origin", "", output::EnumWord(tuning.origin())},
          {"candidates", "CANDIDATES", tuning.candidate_count()},
          {"tuned", "TUNED", output::FormatTimestamp(tuning.tune_time())},
          {"tuning_id", "", tuning.id()},
          {"incomplete_message", "", tuning.incomplete_message()},
          {"", "WINNER", tuning.winner().empty() ? "-" : tuning.winner()}};
}

output::Fields PinFields(const v1::PinRecord& pin) {
  const std::string until = pin.has_expire_time() ? output::FormatTimestamp(pin.expire_time()) : "";
  return {{"problem", "PROBLEM", input::ProblemValue(pin.problem_text())},
          {"environment", "ENVIRONMENT", pin.environment()},
          {"candidate", "CANDIDATE", pin.candidate()},
          {"reason", "", pin.reason()},
          {"since", "SINCE", output::FormatTimestamp(pin.create_time())},
          {"until", "UNTIL", output::Value(until).Shown(until.empty() ? "unpin" : until)},
          {"", "REASON", pin.reason()}};
}

class ListCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "list", "what the database holds", app::Rows::kYes);
    app->add_option("--filter", filter_, "only problems whose text form contains this")
        ->type_name("TEXT");
    app->add_flag("--pins", pins_, "the pins instead of the tunings");
    app::SayColumns(app, TuningFields({}));
    app::SayColumns(app, PinFields({}), " with --pins");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    return pins_ ? ListPins(context, *client) : ListTunings(context, *client);
  }

 private:
  absl::StatusOr<app::ExitCode> ListTunings(app::Context& context, client::Client& client) const {
    v1::ListTuningsRequest request;
    request.set_environment(context.settings().environment);
    request.set_text_filter(filter_);
    request.set_page_size(1000);
    std::vector<v1::Tuning> tunings;
    do {
      ASSIGN_OR_RETURN(auto page, client.Call<v1::ListTuningsResponse>(request));
      for (v1::Tuning& tuning : *page.mutable_tunings()) tunings.push_back(std::move(tuning));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());

    if (context.format() == app::Format::kJson) {
      context.PrintJson({{"tunings", output::JsonMessages(tunings)}});
      return app::ExitCode::kDone;
    }
    context.PrintRows(tunings, TuningFields);
    if (context.format() == app::Format::kTable) {
      context.Say(output::Counted(static_cast<int64_t>(tunings.size()), "tuning"));
    }
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> ListPins(app::Context& context, client::Client& client) const {
    v1::ListPinsRequest request;
    request.set_environment(context.settings().environment);
    ASSIGN_OR_RETURN(const auto response, client.CallPages<v1::ListPinsResponse>(request));
    std::vector<v1::PinRecord> pins;
    for (const v1::PinRecord& pin : response.pins()) {
      if (pin.problem_text().find(filter_) != std::string::npos) pins.push_back(pin);
    }
    context.PrintJson({{"pins", output::JsonMessages(pins)}});
    context.PrintRows(pins, PinFields);
    if (context.format() != app::Format::kJson)
      context.Say(output::Counted(static_cast<int64_t>(pins.size()), "pin"));
    return app::ExitCode::kDone;
  }

  std::string filter_;
  bool pins_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewListCommand() { return std::make_unique<ListCommand>(); }

}  // namespace convtune::cli::commands
