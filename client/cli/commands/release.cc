#include <CLI/CLI.hpp>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/release_fetch.h"
#include "client/cli/input/author.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/base/status_macros.h"
#include "proto/model/environment.h"

namespace convtune::cli::commands {
namespace {

std::string ShareWord(int permille) { return absl::StrCat(permille / 10.0, "%"); }

std::string StateName(const v1::Release& release, int64_t promoted) {
  if (release.state() == v1::RELEASE_STATE_CANARY) return "canary";
  if (release.state() == v1::RELEASE_STATE_ROLLED_BACK) return "rolled_back";
  return release.number() == promoted ? "promoted" : "replaced";
}

// For people. CSV has StateName.
std::string StateText(const v1::Release& release, const std::string& name) {
  return name == "canary"        ? "canary " + ShareWord(release.canary_permille())
         : name == "rolled_back" ? "rolled back"
                                 : name;
}

std::string ChoiceWord(const v1::Portfolio& portfolio) {
  std::vector<std::string> texts;
  for (const v1::ServedChoice& choice : portfolio.choices()) {
    texts.push_back(choice.candidate().text());
  }
  return absl::StrJoin(texts, ";");
}

std::string FirstWord(const v1::Portfolio& portfolio) {
  if (portfolio.choices().empty()) return "-";
  const int more = portfolio.choices_size() - 1;
  return absl::StrCat(portfolio.choices(0).candidate().text(),
                      more > 0 ? absl::StrCat(" +", more) : "");
}

output::Fields ReleaseFields(const v1::Release& release, int64_t promoted) {
  const std::string state = StateName(release, promoted);
  const output::Color color = state == "promoted" ? output::Color::kGreen
                              : state == "canary" ? output::Color::kYellow
                                                  : output::Color::kNone;
  std::string reason = release.reason();
  if (release.restores() != 0) {
    absl::StrAppend(&reason, " (the choices of ", release.restores(), ")");
  }
  if (release.has_end_time()) {
    absl::StrAppend(&reason, "; ", release.end_author(), ": ", release.end_reason());
  }
  return {{"release", "RELEASE", release.number()},
          {"state", "STATE", output::Value(state).Shown(StateText(release, state)).In(color)},
          {"canary_permille", "", release.canary_permille()},
          {"restores", "", release.restores() != 0 ? absl::StrCat(release.restores()) : ""},
          {"author", "AUTHOR", release.author()},
          {"reason", "", release.reason()},
          {"created", "CREATED", output::FormatTimestamp(release.create_time())},
          {"end_author", "", release.end_author()},
          {"end_reason", "", release.end_reason()},
          {"ended", "", release.has_end_time() ? output::FormatTimestamp(release.end_time()) : ""},
          {"", "REASON", reason}};
}

std::string EvidenceOf(const v1::ChoiceChange& change, const v1::Portfolio& portfolio) {
  return portfolio.choices().empty()
             ? "none"
             : calls::EvidenceWord(portfolio.evidence(), change.environment());
}

double Median(const v1::Portfolio& portfolio) {
  return portfolio.choices().empty() ? 0 : portfolio.choices(0).candidate().median_us();
}

output::Fields ChoiceChangeFields(const v1::ChoiceChange& change) {
  const v1::Portfolio& before = change.before();
  const v1::Portfolio& after = change.after();
  const std::string evidence = EvidenceOf(change, before), next = EvidenceOf(change, after);
  return {{"problem", "PROBLEM", input::ProblemValue(change.problem_text())},
          {"environment", "ENVIRONMENT", change.environment()},
          {"before", "BEFORE", output::Value(ChoiceWord(before)).Shown(FirstWord(before))},
          {"after", "AFTER", output::Value(ChoiceWord(after)).Shown(FirstWord(after))},
          {"evidence_before", "", evidence},
          {"evidence_after", "", next},
          {"", "EVIDENCE", absl::StrCat(evidence, " -> ", next)},
          {"time_us_before", "", output::Micros(Median(before))},
          {"time_us_after", "", output::Micros(Median(after))},
          {"", "TIME",
           absl::StrCat(output::FormatMicroseconds(Median(before)), " -> ",
                        output::FormatMicroseconds(Median(after)))}};
}

class ReleaseCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* verb = AddVerbGroup(root, "release", "what unmodified programs are served");
    app::SayColumns(AddVerbBelow(verb, "list", "all releases, newest first", app::Rows::kYes),
                    ReleaseFields({}, 0));
    diff_ = AddVerbBelow(verb, "diff", "what differs; without numbers, what waits for a promotion",
                         app::Rows::kYes);
    diff_->add_option("from", from_, "a release; without it the promoted one")->type_name("FROM");
    diff_->add_option("to", to_, "another release; without it what a promotion would bring")
        ->type_name("TO");
    app::SayColumns(diff_, ChoiceChangeFields({}));
    promote_ = AddVerbBelow(verb, "promote", "serve the changed choices, or promote the canary",
                            app::Rows::kNo);
    promote_
        ->add_option("--canary", canary_,
                     "share of the processes that are served it first, such as 5%")
        ->type_name("SHARE");
    rollback_ =
        AddVerbBelow(verb, "rollback", "roll the canary back, or serve an earlier release again",
                     app::Rows::kNo);
    rollback_
        ->add_option("release", to_, "release to serve again; without it the one promoted before")
        ->type_name("RELEASE");
    fetch_ = AddVerbBelow(verb, "fetch",
                          "bring the snapshot to a folder of this machine, for programs to read",
                          app::Rows::kNo);
    fetch_
        ->add_option("folder", folder_,
                     "folder, made if need be; what CONVTUNE_SNAPSHOT names then")
        ->type_name("FOLDER")
        ->required();
    fetch_->add_option("--wait", wait_, "longest wait for the daemon and its first snapshot")
        ->type_name("TIME");
    fetch_->add_option("--watch", watch_, "interval at which to look again, until SIGTERM")
        ->type_name("TIME");
    for (CLI::App* app : {promote_, rollback_}) {
      app->add_option("--reason", reason_, "the reason, for those who find it later")
          ->type_name("TEXT");
      app->add_option("--author", author_, "who decides; without it your user name")
          ->type_name("NAME");
    }
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    int permille = 0;
    if (!canary_.empty()) {
      ASSIGN_OR_RETURN(permille, output::ParsePermille("--canary", canary_));
    }
    for (const int64_t number : {from_, to_}) {
      if (number < 0) {
        return absl::InvalidArgumentError("RELEASE: must be a number from 1");
      }
    }
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    if (diff_->parsed()) return Diff(context, *client);
    if (promote_->parsed()) return Promote(context, *client, permille);
    if (rollback_->parsed()) return RollBack(context, *client);
    if (fetch_->parsed()) return Fetch(context, *client);
    return List(context, *client);
  }

 private:
  static absl::StatusOr<app::ExitCode> List(app::Context& context, client::Client& client) {
    ASSIGN_OR_RETURN(const auto list,
                     client.CallPages<v1::ListReleasesResponse>(v1::ListReleasesRequest()));
    context.PrintJson(list);
    if (context.format() == app::Format::kJson) return app::ExitCode::kDone;
    context.PrintRows(list.releases(), [&list](const v1::Release& release) {
      return ReleaseFields(release, list.promoted());
    });
    context.Say(Waiting(list.waiting_changes(), list.auto_promote_held()));
    if (list.below_evidence_count() > 0) {
      context.Say(calls::NotPublishedWord(list.below_evidence_count(), list.publish_evidence()));
    }
    SaySimulated(context);
    return app::ExitCode::kDone;
  }

  // A release has choices of all environments, and its row names none. Without an answer the list
  // stands as it is.
  static void SaySimulated(app::Context& context) {
    const auto client = context.Connect();
    if (!client.ok()) return;
    const auto response =
        (*client)->CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest());
    if (!response.ok()) return;
    for (const v1::Environment& environment : response->environments()) {
      if (!IsSimulated(environment.name()) || environment.tuning_count() == 0) continue;
      context.Say(absl::StrCat("the choices for ", environment.name(),
                               " are simulated: no program on a GPU is served them"));
    }
  }

  static std::string Waiting(int64_t changes, bool held) {
    if (changes == 0) return "no changed portfolio waits";
    return absl::StrCat(output::Counted(changes, "changed portfolio"),
                        changes == 1 ? " waits" : " wait", " for `convtune release promote`",
                        held ? "; --auto-promote is held since the last rollback" : "");
  }

  absl::StatusOr<app::ExitCode> Diff(app::Context& context, client::Client& client) const {
    v1::DiffReleasesRequest request;
    request.set_from(from_);
    request.set_to(to_);
    request.set_environment(context.settings().environment);
    request.set_max_changes(10000);
    ASSIGN_OR_RETURN(const auto diff,
                     client.CallPages<v1::DiffReleasesResponse>(request, request.max_changes()));
    context.PrintJson(diff);
    if (context.format() == app::Format::kJson) return app::ExitCode::kDone;
    context.PrintRows(diff.changes(), ChoiceChangeFields);
    context.Say(absl::StrCat(
        output::Counted(diff.change_count(), "change"), " from release ", diff.from(), " to ",
        diff.to() != 0 ? absl::StrCat("release ", diff.to()) : "what is best known"));
    if (diff.changes_size() < diff.change_count()) {
      context.Say(
          absl::StrCat("these are the first ", diff.changes_size(), "; choose with --environment"));
    }
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> Promote(app::Context& context, client::Client& client,
                                        int permille) const {
    v1::PromoteReleaseRequest request;
    request.set_author(input::AuthorOf(author_));
    request.set_reason(reason_.empty() ? "promoted by hand" : reason_);
    request.set_canary_permille(permille);
    ASSIGN_OR_RETURN(const auto release, client.Call<v1::Release>(request));
    context.PrintJson({{"release", release}});
    context.Say(release.state() == v1::RELEASE_STATE_CANARY
                    ? absl::StrCat("release ", release.number(), " is a canary for ",
                                   ShareWord(release.canary_permille()), " of the processes")
                    : absl::StrCat("release ", release.number(), " is promoted"));
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> RollBack(app::Context& context, client::Client& client) const {
    v1::RollBackReleaseRequest request;
    request.set_author(input::AuthorOf(author_));
    request.set_reason(reason_.empty() ? "rolled back by hand" : reason_);
    request.set_release(to_);
    ASSIGN_OR_RETURN(const auto release, client.Call<v1::Release>(request));
    context.PrintJson({{"release", release}});
    context.Say(release.state() == v1::RELEASE_STATE_ROLLED_BACK
                    ? absl::StrCat("the canary, release ", release.number(), ", is rolled back")
                    : absl::StrCat("release ", release.number(), " has the choices of release ",
                                   release.restores(), " again"));
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> Fetch(app::Context& context, client::Client& client) const {
    absl::Duration wait = absl::ZeroDuration(), watch = absl::ZeroDuration();
    for (const auto& [option, text, value] :
         {std::tuple{"--wait", &wait_, &wait}, std::tuple{"--watch", &watch_, &watch}}) {
      if (text->empty()) continue;
      ASSIGN_OR_RETURN(*value, output::ParseTime(option, *text));
    }
    return FetchRelease(context, client, folder_, wait, watch);
  }

  CLI::App* diff_ = nullptr;
  CLI::App* promote_ = nullptr;
  CLI::App* rollback_ = nullptr;
  CLI::App* fetch_ = nullptr;
  int64_t from_ = 0;
  int64_t to_ = 0;
  std::string canary_, reason_, author_;
  std::string folder_, wait_, watch_;
};

}  // namespace

std::unique_ptr<app::Command> NewReleaseCommand() { return std::make_unique<ReleaseCommand>(); }

}  // namespace convtune::cli::commands
