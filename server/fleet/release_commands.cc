// The verbs that decide what the fleet serves: release, pin, unpin, pins.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "db/fleet/bans.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "server/fleet/agent.h"
#include "server/fleet/commands.h"

namespace convtune::fleet {
namespace {

constexpr int64_t kMostChanges = 10'000;

const char* StateName(ReleaseState state) {
  return state == ReleaseState::kPromoted ? "promoted"
         : state == ReleaseState::kCanary ? "canary"
                                          : "rolled_back";
}

// Returns the state for people. JSON has StateName.
std::string StateText(const db::fleet::FleetRelease& one) {
  const Release& release = one.release;
  if (release.state == ReleaseState::kRolledBack) return "rolled back";
  if (one.withdrawal) return "withdrawal";
  std::string text = StateName(release.state);
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

cli::output::Fields ReleaseFields(const db::fleet::FleetRelease& one) {
  const Release& release = one.release;
  std::string state = StateText(one);
  if (release.state == ReleaseState::kCanary) {
    absl::StrAppendFormat(&state, " %.4g%%", release.canary_permille / 10.0);
  }
  return {{"", "RELEASE", absl::StrCat(release.number)},
          {"release", "", release.number},
          {"state", "STATE", cli::output::Value(StateName(release.state)).Shown(state)},
          {"canary_permille", "", release.canary_permille},
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
          {"nodes", "NODES", change.node_count},
          {"fleet_ban", "", ban != nullptr ? ban->fleet_ban : 0}};
}

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

// Counts the new choices that each ban takes away: a line for each.
void SayBanned(const Bans& bans, const std::vector<db::fleet::FleetChange>& changes) {
  std::map<std::string, int64_t> counts;
  for (const db::fleet::FleetChange& change : changes) {
    if (const Bans::Shared ban = BanOf(bans, change)) ++counts[ban->NameAndReason()];
  }
  for (const auto& [ban, count] : counts) {
    std::cerr << count << (count == 1 ? " choice is" : " choices are") << " banned by " << ban
              << ": nodes serve the next best that is left\n";
  }
}

class FleetReleaseCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    CLI::App& app = *root.add_subcommand("release", "what the fleet's nodes serve");
    app.require_subcommand(1);
    AddVerb(app, "list", "every release, newest first", [this] { return List(); });
    CLI::App* const diff =
        AddVerb(app, "diff", "what a promotion would bring, or how two releases differ",
                [this] { return Diff(); });
    diff->add_option("FROM", from_, "number of the first release; 0: nothing");
    diff->add_option("TO", to_, "number of the second");
    AddScope(diff);
    CLI::App* const promote =
        AddVerb(app, "promote", "serve what is best known, or the canary to all",
                [this] { return Promote(); });
    AddDecision(promote);
    promote->add_option("--canary", canary_, "share of the nodes, for example 5%");
    AddScope(promote);
    CLI::App* const rollback =
        AddVerb(app, "rollback", "roll the canary back, or go back to a release",
                [this] { return RollBack(); });
    AddDecision(rollback);
    rollback->add_option("RELEASE", target_, "number; without it the one before");
    CLI::App* const withdraw =
        AddVerb(app, "withdraw", "stop serving the fleet's choices for these problems, at once",
                [this] { return Withdraw(); });
    withdraw->add_option("PROBLEM", problems_, "problems in the text form");
    withdraw->add_flag("--every-problem", every_problem_, "all that the environment is served");
    withdraw->add_option("--environment", environment_, "name or text")->required();
    AddDecision(withdraw);
  }

 private:
  void AddScope(CLI::App* app) {
    app->add_flag("--all", all_, "also where numbers alone changed, and what was withdrawn");
    app->add_option(
           "--min-evidence", min_evidence_,
           "heuristic, observed, incomplete or measured: skip changes with weaker evidence")
        ->capture_default_str();
  }

  absl::StatusOr<db::fleet::PromotionScope> Scope() const {
    const std::optional<Evidence> least = ParseEvidence(min_evidence_);
    if (!least.has_value() || *least == Evidence::kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("--min-evidence: must be heuristic, observed, incomplete or measured, is \"",
                       min_evidence_, "\""));
    }
    return db::fleet::PromotionScope{all_, *least};
  }

  absl::Status List() {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetRelease> releases,
                     db::fleet::ListFleetReleases(*postgres));
    PrintRows(releases, ReleaseFields);
    return absl::OkStatus();
  }

  absl::Status Diff() {
    if ((from_ >= 0) != (to_ >= 0)) {
      return absl::InvalidArgumentError("release diff: must have two numbers, or none");
    }
    ASSIGN_OR_RETURN(const db::fleet::PromotionScope scope, Scope());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    db::fleet::FleetDiff diff;
    if (from_ >= 0) {
      ASSIGN_OR_RETURN(diff, db::fleet::DiffFleetReleases(*postgres, from_, to_, kMostChanges));
    } else {
      RETURN_IF_ERROR(PoolEverything(*postgres));
      ASSIGN_OR_RETURN(diff, db::fleet::DiffPooled(*postgres, scope, kMostChanges));
    }
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> listed,
                     db::fleet::ListFleetBans(*postgres));
    const Bans bans = db::fleet::ReadableBans(listed);
    const auto fields_of = [&bans](const db::fleet::FleetChange& change) {
      return ChangeFields(change, bans);
    };
    if (json_) {
      const cli::output::Json document =
          cli::output::JsonObject({{"change_count", diff.change_count},
                                   {"lesser_evidence_count", diff.lesser_count},
                                   {"changes", cli::output::JsonRows(diff.changes, fields_of)}});
      std::cout << document.text << '\n';
      return absl::OkStatus();
    }
    if (!diff.changes.empty())
      std::cout << cli::output::TableOf(diff.changes, fields_of).Render(0, false);
    std::cerr << diff.change_count << " changes";
    if (diff.lesser_count > 0) {
      std::cerr << ", and " << db::fleet::LesserEvidence(diff.lesser_count, scope.min_evidence);
    }
    std::cerr << '\n';
    SayBanned(bans, diff.changes);
    return absl::OkStatus();
  }

  absl::Status Promote() {
    RETURN_IF_ERROR(CheckDecision());
    int permille = 0;
    if (!canary_.empty()) {
      ASSIGN_OR_RETURN(permille, cli::output::ParsePermille("--canary", canary_));
    }
    ASSIGN_OR_RETURN(const db::fleet::PromotionScope scope, Scope());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    RETURN_IF_ERROR(PoolEverything(*postgres));
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    const int64_t before = served.promoted() != nullptr ? served.promoted()->number : 0;
    ASSIGN_OR_RETURN(const db::fleet::FleetRelease made,
                     db::fleet::PromoteFleetRelease(*postgres, author_, reason_, permille, scope));
    SayMade(made);
    // The release holds, whether or not this can be read.
    if (const absl::Status read = WarnOfBanned(*postgres, before, made.release.number);
        !read.ok()) {
      std::cerr << "warning: banned choices cannot be read: " << read.message() << '\n';
    }
    if (made.release.state != ReleaseState::kCanary) return absl::OkStatus();
    return WarnOfNoCanary(*postgres, made.release);
  }

  // A release keeps a choice that is banned: it is served where the ban ends.
  static absl::Status WarnOfBanned(db::postgres::Connection& postgres, int64_t before,
                                   int64_t made) {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> bans,
                     db::fleet::ListFleetBans(postgres));
    if (bans.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const db::fleet::FleetDiff diff,
                     db::fleet::DiffFleetReleases(postgres, before, made, kMostChanges));
    SayBanned(db::fleet::ReadableBans(bans), diff.changes);
    return absl::OkStatus();
  }

  // The share is of a draw: of a few nodes it may be none.
  static absl::Status WarnOfNoCanary(db::postgres::Connection& postgres, const Release& canary) {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeStatus> nodes,
                     db::fleet::ListNodes(postgres));
    const auto takes = std::count_if(nodes.begin(), nodes.end(), [&](const auto& node) {
      return TakesCanary(node.name, canary.number, canary.canary_permille);
    });
    if (takes > 0) return absl::OkStatus();
    std::cerr << "warning: none of " << nodes.size()
              << " nodes is drawn for this canary: promote again with a greater --canary\n";
    return absl::OkStatus();
  }

  absl::Status Withdraw() {
    RETURN_IF_ERROR(CheckDecision());
    if (problems_.empty() != every_problem_) {
      return absl::InvalidArgumentError("PROBLEM or --every-problem: one of them is required");
    }
    std::set<std::string> texts;
    for (const std::string& text : problems_) {
      ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(text));
      texts.insert(problem.ToText());
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::string environment,
                     db::fleet::ResolveFleetEnvironment(*postgres, environment_));
    ASSIGN_OR_RETURN(const db::fleet::FleetRelease made,
                     db::fleet::WithdrawFleetChoices(*postgres, author_, reason_, environment,
                                                     {texts.begin(), texts.end()}));
    SayMade(made);
    return absl::OkStatus();
  }

  absl::Status RollBack() {
    RETURN_IF_ERROR(CheckDecision());
    if (target_ < 0) return absl::InvalidArgumentError("RELEASE: must be a number from 1");
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const db::fleet::FleetRollback back,
                     db::fleet::RollBackFleetRelease(*postgres, author_, reason_, target_));
    SayMade(back.made);
    if (back.kept_count > 0) {
      std::cerr << back.kept_count << " problems keep their first choice, which came after release "
                << back.made.release.restores << "; `release withdraw` takes them away\n";
    }
    if (back.returned_count > 0) {
      std::cerr << "warning: " << back.returned_count
                << " choices that were withdrawn are served again; `release withdraw` takes them "
                   "away\n";
    }
    return absl::OkStatus();
  }

  void SayMade(const db::fleet::FleetRelease& made) const {
    std::string share;
    if (made.release.state == ReleaseState::kCanary) {
      share = absl::StrFormat(" for %.4g%% of the nodes", made.release.canary_permille / 10.0);
    }
    Print(cli::output::JsonRow(ReleaseFields(made)),
          absl::StrCat("fleet release ", made.release.number, ": ", StateText(made), share, ", ",
                       made.change_count, " changes"));
  }

  int64_t from_ = -1;
  int64_t to_ = -1;
  int64_t target_ = 0;
  std::string canary_;
  bool all_ = false;
  std::string min_evidence_ = "measured";
  std::vector<std::string> problems_;
  std::string environment_;
  bool every_problem_ = false;
};

class FleetPinCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const pin =
        AddVerb(root, "pin", "make one candidate every node's answer to a problem",
                [this] { return Pin(); });
    pin->add_option("PROBLEM", problem_)->required();
    pin->add_option("CANDIDATE", candidate_, "its text form")->required();
    pin->add_option("--environment", environment_, "name or text")->required();
    pin->add_option("--ttl", ttl_, "how long, for example 24h; without it until unpin");
    AddDecision(pin);
    CLI::App* const unpin = AddVerb(root, "unpin", "end a pin", [this] { return Unpin(); });
    unpin->add_option("PROBLEM", problem_)->required();
    unpin->add_option("--environment", environment_, "name or text")->required();
    AddAuthor(unpin);
    AddVerb(root, "pins", "every pin", [this] { return List(); });
  }

 private:
  absl::Status Pin() {
    RETURN_IF_ERROR(CheckDecision());
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(problem_));
    ASSIGN_OR_RETURN(const CandidateId candidate, ParseCandidateId(candidate_));
    std::optional<absl::Duration> ttl;
    if (!ttl_.empty()) {
      ASSIGN_OR_RETURN(ttl, cli::output::ParseTime("--ttl", ttl_));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::string environment,
                     db::fleet::ResolveFleetEnvironment(*postgres, environment_));
    RETURN_IF_ERROR(PoolEverything(*postgres));
    db::fleet::FleetNames names(postgres.get());
    ASSIGN_OR_RETURN(const int64_t id,
                     db::fleet::PutFleetPin(*postgres, names, environment, problem.ToText(),
                                            ToText(candidate), author_, reason_, ttl));
    Print(cli::output::JsonObject({{"pin", id}}), absl::StrCat("pin ", id));
    return absl::OkStatus();
  }

  absl::Status Unpin() {
    ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(problem_));
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::string environment,
                     db::fleet::ResolveFleetEnvironment(*postgres, environment_));
    return db::fleet::EndFleetPin(*postgres, environment, problem.ToText(), author_);
  }

  absl::Status List() {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetPin> pins,
                     db::fleet::ListFleetPins(*postgres, {}));
    PrintRows(pins, PinFields);
    return absl::OkStatus();
  }

  std::string problem_;
  std::string candidate_;
  std::string environment_;
  std::string ttl_;
};

}  // namespace

std::unique_ptr<FleetCommand> NewFleetReleaseCommand() {
  return std::make_unique<FleetReleaseCommand>();
}
std::unique_ptr<FleetCommand> NewFleetPinCommand() { return std::make_unique<FleetPinCommand>(); }

}  // namespace convtune::fleet
