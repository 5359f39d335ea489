#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "client/fleet/commands.h"
#include "convtune/v1/release_service.pb.h"
#include "db/fleet/bans.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::fleet {
namespace {

constexpr int64_t kMostChanges = 10'000;

std::string StateWord(const Release& release, char between) {
  return cli::output::EnumWord(static_cast<v1::ReleaseState>(release.state), between);
}

// Returns the state for people.
std::string StateText(const db::fleet::FleetRelease& one) {
  const Release& release = one.release;
  if (one.withdrawal && release.state != ReleaseState::kRolledBack) return "withdrawal";
  std::string text = StateWord(release, ' ');
  if (release.restores != 0) absl::StrAppend(&text, ", as ", release.restores);
  return text;
}

// "12.3"; "-" for nothing.
std::string Micros(std::optional<double> us) {
  return us.has_value() ? absl::StrFormat("%.1f", *us) : "-";
}

// "ann" and "ann (login fleet_ops)"; for a canary that ended, both who decided.
std::string Deciders(const db::fleet::FleetRelease& one) {
  const auto named = [](const std::string& author, const std::string& login) {
    return author == login ? author : absl::StrCat(author, " (login ", login, ")");
  };
  std::string text = named(one.release.author, one.login);
  if (one.release.end_author.empty()) return text;
  const bool rolled_back = one.release.state == ReleaseState::kRolledBack;
  return absl::StrCat(text, rolled_back ? "; rolled back by " : "; promoted by ",
                      named(one.release.end_author, one.end_login));
}

std::string Reasons(const Release& release) {
  if (release.end_reason.empty()) return release.reason;
  return absl::StrCat(release.reason, "; ", release.end_reason);
}

cli::output::Fields ReleaseFields(const db::fleet::FleetRelease& one,
                                  const db::fleet::Heeding& heeding, bool with_names) {
  const Release& release = one.release;
  std::string state = StateText(one);
  if (release.state == ReleaseState::kCanary) {
    absl::StrAppendFormat(&state, " %.4g%%", release.canary_permille / 10.0);
    if (!one.silent_canary_nodes.empty()) {
      absl::StrAppend(&state, ", ", one.silent_canary_nodes.size(), " of ", one.canary_nodes.size(),
                      " nodes silent");
    }
  }
  cli::output::Fields fields = {
      {"", "RELEASE", absl::StrCat(release.number)},
      {"release", "", release.number},
      {"state", "STATE", cli::output::Value(StateWord(release, '_')).Shown(state)},
      {"canary_permille", "", release.canary_permille},
      {"canary_nodes", "", one.canary_nodes},
      {"silent_canary_nodes", "", one.silent_canary_nodes},
      {"restores", "", release.restores},
      {"withdrawal", "", one.withdrawal},
      {"nodes", "NODES", one.node_count},
      {"changes", "CHANGES", one.change_count},
      {"create_time", "",
       absl::FormatTime(absl::RFC3339_full, release.create_time, absl::UTCTimeZone())},
      {"", "WHEN", cli::output::FormatTimestamp(release.create_time)},
      {"author", "", release.author},
      {"", "AUTHOR", Deciders(one)},
      {"reason", "REASON", cli::output::Value(release.reason).Shown(Reasons(release))},
      {"end_author", "", release.end_author},
      {"end_reason", "", release.end_reason},
      {"login", "", one.login},
      {"end_login", "", one.end_login}};
  AddHeeding(heeding, with_names, &fields);
  return fields;
}

// The fleet's ban that takes the change's new choice away; nullptr if no ban does.
Bans::Shared BanOf(const Bans& bans, const db::fleet::FleetChange& change) {
  const absl::StatusOr<CandidateId> candidate = ParseCandidateId(change.after);
  if (!candidate.ok()) return nullptr;
  return bans.Find(*candidate, {change.problem_text, change.environment_text});
}

cli::output::Fields ChangeFields(const db::fleet::FleetChange& change, const Bans& bans) {
  const Bans::Shared ban = BanOf(bans, change);
  const std::string banned = ban != nullptr ? absl::StrCat(" (", ban->Name(), ")") : "";
  using cli::output::Value;
  return {{"problem", "PROBLEM", change.problem_text},
          {"environment", "ENVIRONMENT", change.environment_text},
          {"before", "BEFORE",
           Value(change.before).Shown(change.before.empty() ? "(none)" : change.before)},
          {"before_us", "us", Value(change.before_us).Shown(Micros(change.before_us))},
          {"after", "AFTER",
           Value(change.after).Shown(change.after.empty() ? "(none)" : change.after + banned)},
          {"after_us", "us", Value(change.after_us).Shown(Micros(change.after_us))},
          {"nodes", "NODES",
           Value(change.node_count)
               .Shown(change.nodes_wanted == 0 ? absl::StrCat(change.node_count)
                                               : absl::StrCat(change.node_count, " of ",
                                                              change.nodes_wanted, ": held back"))},
          {"nodes_wanted", "", change.nodes_wanted},
          {"fleet_ban", "", ban != nullptr ? ban->fleet_ban : 0}};
}

// Counts the new choices that each ban takes away: a line for each.
void SayBanned(cli::app::Context& context, const Bans& bans,
               const std::vector<db::fleet::FleetChange>& changes) {
  std::map<std::string, int64_t> counts;
  for (const db::fleet::FleetChange& change : changes) {
    if (const Bans::Shared ban = BanOf(bans, change)) ++counts[ban->NameAndReason()];
  }
  for (const auto& [ban, count] : counts) {
    context.Say(count, count == 1 ? " choice is" : " choices are", " banned by ", ban,
                ": nodes serve the next best that is left");
  }
}

// Says what was made, and waits as `wait` says. The document says how far it has come then.
absl::StatusOr<cli::app::ExitCode> PrintMade(cli::app::Context& context,
                                             db::postgres::Connection& postgres,
                                             const db::fleet::FleetRelease& made,
                                             const WaitArgs& wait) {
  std::string share;
  if (made.release.state == ReleaseState::kCanary) {
    share =
        absl::StrFormat(" for %.4g%% of the living nodes: ", made.release.canary_permille / 10.0) +
        absl::StrJoin(made.canary_nodes, ", ");
    if (made.silent_count > 0) {
      context.Say("warning: ", made.silent_count,
                  " nodes were left out of the draw, since they are silent; `status` "
                  "names them");
    }
  }
  if (context.format() != cli::app::Format::kJson) {
    context.io().out << absl::StrCat("fleet release ", made.release.number, ": ", StateText(made),
                                     share, ", ", made.change_count, " changes\n");
  }
  const auto read = [&]() -> absl::StatusOr<db::fleet::Heeding> {
    ASSIGN_OR_RETURN(auto all, db::fleet::ReadReleaseHeeding(postgres, made.release.number));
    return all[made.release.number];
  };
  const auto read_standing = [&]() -> absl::StatusOr<db::fleet::Heeding> {
    ASSIGN_OR_RETURN(db::fleet::Heeding now, read());
    RETURN_IF_ERROR(db::fleet::CheckReleaseStands(postgres, made.release));
    return now;
  };
  absl::StatusOr<cli::app::ExitCode> waited = wait.Wait(context, read_standing);
  const absl::StatusOr<db::fleet::Heeding> heeding = read();
  if (context.format() == cli::app::Format::kJson) {
    context.io().out << cli::output::JsonRow(
                            ReleaseFields(made, heeding.value_or(db::fleet::Heeding()), false))
                            .text
                     << '\n';
  }
  RETURN_IF_ERROR(heeding.status());
  return waited;
}

class FleetReleaseCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerbGroup(root, "release", "what the fleet's nodes serve");
    AddVerbBelow(app, "list", "every release, newest first", ReleaseFields({}, {}, false))
        ->add_flag("--nodes", with_names_, "also who has not heeded it");
    diff_ = AddVerbBelow(app, "diff", "what a promotion would bring, or how two releases differ",
                         ChangeFields({}, {}));
    diff_->add_option("FROM", from_, "number of the first release; 0: nothing");
    diff_->add_option("TO", to_, "number of the second");
    promote_ = AddVerbBelow(app, "promote", "serve what is best known, or the canary to all");
    promote_->add_option("--canary", canary_, "share of the nodes, for example 5%");
    rollback_ = AddVerbBelow(app, "rollback", "roll the canary back, or go back to a release");
    rollback_->add_option("RELEASE", target_, "number; without it the one before");
    withdraw_ =
        AddVerbBelow(app, "withdraw", "stop serving the fleet's choices for these problems");
    withdraw_->add_option("PROBLEM", problems_, "problems in the text form");
    withdraw_->add_flag("--every-problem", every_problem_, "all that the environment is served");
    withdraw_->add_option("--environment", environment_, "name or text")->required();
    sign_ = AddVerbBelow(app, "sign", "sign every release as it is, for agents that require it");
    sign_->add_option("KEY", decision_.key_file, "PEM file with the private key")->required();
    for (CLI::App* const verb : {promote_, rollback_, withdraw_}) {
      decision_.Register(*verb);
      decision_.RegisterSign(*verb);
      wait_.Register(*verb);
    }
    for (CLI::App* const verb : {promote_, rollback_}) {
      verb->add_option("--from", served_,
                       "the release, or canary, that you looked at; refused where the fleet serves "
                       "another since. Default: that served when the command begins")
          ->check(CLI::NonNegativeNumber);
    }
    for (CLI::App* const verb : {diff_, promote_}) {
      verb->add_flag("--all", scope_.all,
                     "also where numbers alone changed, and what was withdrawn");
      verb->add_option_function<std::string>(
              "--min-evidence",
              [this](const std::string& word) { scope_.min_evidence = *ParseEvidence(word); },
              "skip changes with weaker evidence")
          ->check(CLI::IsMember({"heuristic", "observed", "incomplete", "measured"}))
          ->default_str("measured");
      verb->add_option("--min-nodes", scope_.min_nodes,
                       "skip changes that fewer nodes agree with. Default: 2 in an environment of "
                       "more than three nodes that tune, else 1")
          ->check(CLI::Range(1, 1000));
    }
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    if (diff_->parsed()) return Diff(context);
    if (promote_->parsed()) return Promote(context);
    if (rollback_->parsed()) return RollBack(context);
    if (withdraw_->parsed()) return Withdraw(context);
    if (sign_->parsed()) return Sign(context);
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetRelease> releases,
                     db::fleet::ListFleetReleases(*postgres));
    ASSIGN_OR_RETURN(auto heeding, db::fleet::ReadReleaseHeeding(*postgres));
    const auto fields_of = [&](const db::fleet::FleetRelease& one) {
      return ReleaseFields(one, heeding[one.release.number], with_names_);
    };
    return PrintFleetRows(context, releases, fields_of, "there is no release");
  }

 private:
  // The release that --from names; without it the one that was served when the command began.
  db::fleet::SeenRelease Seen(const ReleaseHistory& served) const {
    if (served_.has_value()) return {*served_, std::nullopt};
    return {db::fleet::NewestServed(served), served.canary() != nullptr};
  }

  absl::StatusOr<cli::app::ExitCode> Diff(cli::app::Context& context) const {
    if ((from_ >= 0) != (to_ >= 0)) {
      return absl::InvalidArgumentError("release diff: must have two numbers, or none");
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    db::fleet::FleetDiff diff;
    if (from_ >= 0) {
      ASSIGN_OR_RETURN(diff, db::fleet::DiffFleetReleases(*postgres, from_, to_, kMostChanges));
    } else {
      RETURN_IF_ERROR(PoolEverything(context, *postgres));
      ASSIGN_OR_RETURN(diff, db::fleet::DiffPooled(*postgres, scope_, kMostChanges));
    }
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> listed,
                     db::fleet::ListFleetBans(*postgres));
    const Bans bans = db::fleet::HeededBans(listed);
    const absl::Status whole = db::fleet::CheckServed(*postgres, db::fleet::NewestServed(served));
    if (!whole.ok() && !absl::IsDataLoss(whole)) return whole;
    // Nobody should decide by this.
    const cli::app::ExitCode done =
        whole.ok() ? cli::app::ExitCode::kDone : FailFleet(context, whole);
    const auto fields_of = [&bans](const db::fleet::FleetChange& change) {
      return ChangeFields(change, bans);
    };
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeDeviation> deviating,
                     db::fleet::ListDeviating(*postgres));
    const auto held =
        std::find_if(diff.changes.begin(), diff.changes.end(),
                     [](const db::fleet::FleetChange& change) { return change.nodes_wanted > 0; });
    const std::vector<db::fleet::FleetChange> taken(diff.changes.begin(), held);
    context.PrintJson(
        {{"served", db::fleet::NewestServed(served)},
         {"change_count", diff.change_count},
         {"lesser_evidence_count", diff.lesser_count},
         {"held_back_count", diff.held_count},
         {"changes", cli::output::JsonRows(taken, fields_of)},
         {"held_back", cli::output::JsonRows(std::vector(held, diff.changes.end()), fields_of)},
         {"deviating", cli::output::JsonRows(deviating, DeviationFields)},
         {"damaged", std::string(whole.message())}});
    context.PrintRows(diff.changes, fields_of);
    if (context.format() == cli::app::Format::kJson) return done;
    const std::string left = db::fleet::LeftOut(diff, scope_);
    context.Say(diff.change_count, " changes", left.empty() ? "" : ", and ", left);
    SayDeviating(context, deviating);
    if (from_ < 0 && diff.change_count > 0) {
      context.Say("`release promote --from ", db::fleet::NewestServed(served),
                  "` is refused where somebody decides before");
    }
    SayBanned(context, bans, taken);
    return done;
  }

  absl::StatusOr<cli::app::ExitCode> Promote(cli::app::Context& context) const {
    int permille = 0;
    if (!canary_.empty()) {
      ASSIGN_OR_RETURN(permille, cli::output::ParsePermille("--canary", canary_));
    }
    ASSIGN_OR_RETURN(const db::fleet::FleetDecision decision, decision_.Read());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    for (const char* const flag : {"--all", "--min-evidence", "--min-nodes"}) {
      if (served.canary() == nullptr || promote_->count(flag) == 0) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(flag, ": canary ", served.canary()->number,
                       " keeps the changes that it has; roll it back to choose others"));
    }
    RETURN_IF_ERROR(PoolEverything(context, *postgres));
    const int64_t before = served.promoted() != nullptr ? served.promoted()->number : 0;
    ASSIGN_OR_RETURN(
        const db::fleet::FleetRelease made,
        db::fleet::PromoteFleetRelease(*postgres, decision, permille, scope_, Seen(served)));
    // The release holds, whether or not this can be read.
    absl::Status read = WarnOfBanned(context, *postgres, before, made.release.number);
    read.Update(WarnOfLeftOut(context, *postgres));
    if (!read.ok()) {
      context.Say("warning: banned choices and what is left out cannot be read: ",
                  std::string(read.message()));
    }
    return PrintMade(context, *postgres, made, wait_);
  }

  // A release keeps a choice that is banned: it is served where the ban ends.
  static absl::Status WarnOfBanned(cli::app::Context& context, db::postgres::Connection& postgres,
                                   int64_t before, int64_t made) {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> bans,
                     db::fleet::ListFleetBans(postgres));
    ASSIGN_OR_RETURN(const db::fleet::FleetDiff diff,
                     db::fleet::DiffFleetReleases(postgres, before, made, kMostChanges));
    SayBanned(context, db::fleet::HeededBans(bans), diff.changes);
    return absl::OkStatus();
  }

  absl::Status WarnOfLeftOut(cli::app::Context& context, db::postgres::Connection& postgres) const {
    ASSIGN_OR_RETURN(const db::fleet::FleetDiff diff, db::fleet::DiffPooled(postgres, scope_, 0));
    const std::string left = db::fleet::LeftOut(diff, scope_);
    if (!left.empty()) context.Say("left out: ", left, "; see `release diff`");
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeDeviation> deviating,
                     db::fleet::ListDeviating(postgres));
    SayDeviating(context, deviating);
    return absl::OkStatus();
  }

  absl::StatusOr<cli::app::ExitCode> Withdraw(cli::app::Context& context) const {
    if (problems_.empty() != every_problem_) {
      return absl::InvalidArgumentError("PROBLEM or --every-problem: one of them is required");
    }
    std::set<std::string> texts;
    for (const std::string& text : problems_) {
      ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(text));
      texts.insert(problem.ToText());
    }
    ASSIGN_OR_RETURN(const db::fleet::FleetDecision decision, decision_.Read());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::string environment,
                     db::fleet::ResolveFleetEnvironment(*postgres, environment_));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetPin> pins,
                     db::fleet::ListFleetPins(*postgres));
    ASSIGN_OR_RETURN(const db::fleet::FleetRelease made,
                     db::fleet::WithdrawFleetChoices(*postgres, decision, environment,
                                                     {texts.begin(), texts.end()}));
    for (const db::fleet::FleetPin& pin : pins) {
      const bool is_gone = every_problem_ || texts.contains(pin.problem_text);
      if (!is_gone || pin.environment_text != environment) continue;
      context.Say("pin ", pin.pin_id, " of ", pin.problem_text,
                  " has no effect where the node has no tuning of its own");
    }
    return PrintMade(context, *postgres, made, wait_);
  }

  absl::StatusOr<cli::app::ExitCode> Sign(cli::app::Context& context) const {
    ASSIGN_OR_RETURN(const db::fleet::FleetDecision decision, decision_.Read());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const int64_t count, db::fleet::SignReleases(*postgres, decision.key));
    return PrintOutcome(context, {{"signed", count}}, absl::StrCat(count, " releases signed"));
  }

  absl::StatusOr<cli::app::ExitCode> RollBack(cli::app::Context& context) const {
    if (target_ < 0) return absl::InvalidArgumentError("RELEASE: must be a number from 1");
    ASSIGN_OR_RETURN(const db::fleet::FleetDecision decision, decision_.Read());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    ASSIGN_OR_RETURN(const db::fleet::FleetRelease made,
                     db::fleet::RollBackFleetRelease(*postgres, decision, target_, Seen(served)));
    if (made.kept_count > 0) {
      context.Say(made.kept_count, " problems keep their first choice, which came after release ",
                  made.release.restores, "; `release withdraw` takes them away");
    }
    if (made.returned_count > 0) {
      context.Say("warning: ", made.returned_count,
                  " choices that were withdrawn are served again; `release withdraw` "
                  "takes them away");
    }
    return PrintMade(context, *postgres, made, wait_);
  }

  CLI::App* diff_ = nullptr;
  CLI::App* promote_ = nullptr;
  CLI::App* rollback_ = nullptr;
  CLI::App* withdraw_ = nullptr;
  CLI::App* sign_ = nullptr;
  DecisionArgs decision_;
  WaitArgs wait_;
  bool with_names_ = false;
  db::fleet::PromotionScope scope_;
  int64_t from_ = -1;
  int64_t to_ = -1;
  int64_t target_ = 0;
  std::optional<int64_t> served_;
  std::string canary_;
  std::vector<std::string> problems_;
  std::string environment_;
  bool every_problem_ = false;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewFleetReleaseCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetReleaseCommand>(flags);
}

}  // namespace convtune::fleet
