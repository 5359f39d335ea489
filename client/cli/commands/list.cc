#include <CLI/CLI.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class ListCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "list", "what the database holds", app::Rows::kYes);
    app->add_option("--filter", filter_, "only problems whose text form contains this")
        ->type_name("TEXT");
    app->add_flag("--pins", pins_, "the pins instead of the tunings");
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
      ASSIGN_OR_RETURN(auto page, client.ListTunings(request));
      for (v1::Tuning& tuning : *page.mutable_tunings()) tunings.push_back(std::move(tuning));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());

    std::ostream& out = context.io().out;
    if (context.format() == app::Format::kJson) {
      out << output::JsonObject().AddRaw("tunings", output::JsonMessages(tunings)).Take() << "\n";
      return app::ExitCode::kDone;
    }
    if (context.format() == app::Format::kCsv) {
      out << output::CsvLine({"problem", "environment", "winner", "evidence", "origin",
                              "candidates", "tuned", "tuning_id", "incomplete_message"});
      for (const v1::Tuning& tuning : tunings) {
        out << output::CsvLine(
            {tuning.problem_text(), tuning.environment().name(), tuning.winner(),
             output::EnumWord(tuning.evidence()), output::EnumWord(tuning.origin()),
             absl::StrCat(tuning.candidate_count()), output::FormatTimestamp(tuning.tune_time()),
             tuning.id(), tuning.incomplete_message()});
      }
      return app::ExitCode::kDone;
    }
    output::Table table({{"PROBLEM"},
                         {"ENVIRONMENT"},
                         {"EVIDENCE"},
                         {"CANDIDATES", output::Align::kRight},
                         {"TUNED"},
                         {"WINNER"}});
    for (const v1::Tuning& tuning : tunings) {
      table.Add({input::ShortProblem(tuning.problem_text()),
                 tuning.environment().name(),
                 {calls::EvidenceWord(tuning.evidence(), tuning.environment().name()),
                  calls::EvidenceColor(tuning.evidence())},
                 absl::StrCat(tuning.candidate_count()),
                 output::FormatTimestamp(tuning.tune_time()),
                 tuning.winner().empty() ? "-" : tuning.winner()});
    }
    context.PrintTable(table);
    context.Say(absl::StrCat(tunings.size(), tunings.size() == 1 ? " tuning" : " tunings"));
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> ListPins(app::Context& context, client::Client& client) const {
    v1::ListPinsRequest request;
    request.set_environment(context.settings().environment);
    ASSIGN_OR_RETURN(const auto response, client.ListPins(request));
    std::vector<v1::PinRecord> pins;
    for (const v1::PinRecord& pin : response.pins()) {
      if (pin.problem_text().find(filter_) != std::string::npos) pins.push_back(pin);
    }
    if (context.format() == app::Format::kJson) {
      context.PrintJson(output::JsonObject().AddRaw("pins", output::JsonMessages(pins)).Take());
      return app::ExitCode::kDone;
    }
    context.PrintCsv({"problem", "environment", "candidate", "reason", "since", "until"});
    output::Table table(
        {{"PROBLEM"}, {"ENVIRONMENT"}, {"CANDIDATE"}, {"SINCE"}, {"UNTIL"}, {"REASON"}});
    for (const v1::PinRecord& pin : pins) {
      const std::string until =
          pin.has_expire_time() ? output::FormatTimestamp(pin.expire_time()) : "";
      context.PrintCsv({pin.problem_text(), pin.environment(), pin.candidate(), pin.reason(),
                        output::FormatTimestamp(pin.create_time()), until});
      table.Add({input::ShortProblem(pin.problem_text()), pin.environment(), pin.candidate(),
                 output::FormatTimestamp(pin.create_time()), until.empty() ? "unpin" : until,
                 pin.reason()});
    }
    context.PrintTable(table);
    context.Say(absl::StrCat(pins.size(), pins.size() == 1 ? " pin" : " pins"));
    return app::ExitCode::kDone;
  }

  std::string filter_;
  bool pins_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewListCommand() { return std::make_unique<ListCommand>(); }

}  // namespace convtune::cli::commands
