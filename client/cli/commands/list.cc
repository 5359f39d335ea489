#include <CLI/CLI.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/app/command.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

class ListCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "list", "what the database holds", Rows::kYes);
    app->add_option("--filter", filter_, "only problems whose text form contains this")
        ->type_name("TEXT");
    app->add_flag("--pins", pins_, "the pins instead of the tunings");
  }

  absl::StatusOr<ExitCode> Run(Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    return pins_ ? ListPins(context, *client) : ListTunings(context, *client);
  }

 private:
  absl::StatusOr<ExitCode> ListTunings(Context& context, Client& client) const {
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
    if (context.format() == Format::kJson) {
      out << JsonObject().AddRaw("tunings", JsonMessages(tunings)).Take() << "\n";
      return ExitCode::kDone;
    }
    if (context.format() == Format::kCsv) {
      out << CsvLine({"problem", "environment", "winner", "evidence", "origin", "candidates",
                      "tuned", "tuning_id", "incomplete_message"});
      for (const v1::Tuning& tuning : tunings) {
        out << CsvLine({tuning.problem_text(), tuning.environment().name(), tuning.winner(),
                        EnumWord(tuning.evidence()), EnumWord(tuning.origin()),
                        absl::StrCat(tuning.candidate_count()), FormatTimestamp(tuning.tune_time()),
                        tuning.id(), tuning.incomplete_message()});
      }
      return ExitCode::kDone;
    }
    Table table({{"PROBLEM"},
                 {"ENVIRONMENT"},
                 {"EVIDENCE"},
                 {"CANDIDATES", Align::kRight},
                 {"TUNED"},
                 {"WINNER"}});
    for (const v1::Tuning& tuning : tunings) {
      table.Add({ShortProblem(tuning.problem_text()),
                 tuning.environment().name(),
                 {EnumWord(tuning.evidence()), EvidenceColor(tuning.evidence())},
                 absl::StrCat(tuning.candidate_count()),
                 FormatTimestamp(tuning.tune_time()),
                 tuning.winner().empty() ? "-" : tuning.winner()});
    }
    context.PrintTable(table);
    context.Say(absl::StrCat(tunings.size(), tunings.size() == 1 ? " tuning" : " tunings"));
    return ExitCode::kDone;
  }

  absl::StatusOr<ExitCode> ListPins(Context& context, Client& client) const {
    v1::ListPinsRequest request;
    request.set_environment(context.settings().environment);
    ASSIGN_OR_RETURN(const auto response, client.ListPins(request));
    std::vector<v1::PinRecord> pins;
    for (const v1::PinRecord& pin : response.pins()) {
      if (pin.problem_text().find(filter_) != std::string::npos) pins.push_back(pin);
    }
    if (context.format() == Format::kJson) {
      context.PrintJson(JsonObject().AddRaw("pins", JsonMessages(pins)).Take());
      return ExitCode::kDone;
    }
    context.PrintCsv({"problem", "environment", "candidate", "reason", "since", "until"});
    Table table({{"PROBLEM"}, {"ENVIRONMENT"}, {"CANDIDATE"}, {"SINCE"}, {"UNTIL"}, {"REASON"}});
    for (const v1::PinRecord& pin : pins) {
      const std::string until = pin.has_expire_time() ? FormatTimestamp(pin.expire_time()) : "";
      context.PrintCsv({pin.problem_text(), pin.environment(), pin.candidate(), pin.reason(),
                        FormatTimestamp(pin.create_time()), until});
      table.Add({ShortProblem(pin.problem_text()), pin.environment(), pin.candidate(),
                 FormatTimestamp(pin.create_time()), until.empty() ? "unpin" : until,
                 pin.reason()});
    }
    context.PrintTable(table);
    context.Say(absl::StrCat(pins.size(), pins.size() == 1 ? " pin" : " pins"));
    return ExitCode::kDone;
  }

  std::string filter_;
  bool pins_ = false;
};

}  // namespace

std::unique_ptr<Command> NewListCommand() { return std::make_unique<ListCommand>(); }

}  // namespace convtune::cli
