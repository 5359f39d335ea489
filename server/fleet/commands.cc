#include "server/fleet/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/input/author.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"
#include "server/fleet/pooling.h"

namespace convtune::fleet {
namespace {

// An agent writes a heartbeat every ten seconds, unless --refresh says otherwise.
constexpr absl::Duration kSilent = absl::Minutes(1);

volatile std::sig_atomic_t stop_requested = 0;
volatile std::sig_atomic_t reload_requested = 0;

absl::Status CheckText(const std::string& option, const std::string& text, size_t most) {
  if (text.empty() || text.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": must be 1 to ", most, " bytes"));
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return absl::InvalidArgumentError(absl::StrCat(option, ": must have no control characters"));
    }
  }
  return absl::OkStatus();
}

class MigrateCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "migrate", "make the fleet's tables, or bring them up to date",
                [this] { return Run(); });
    app->add_option("--agent-role", roles_.agents,
                    "role of PostgreSQL that gets the rights of agents; made if it is not there");
    app->add_option("--operator-role", roles_.operators,
                    "the same for operators, who also decide on releases, pins and bans");
  }

 private:
  absl::Status Run() {
    ASSIGN_OR_RETURN(const db::postgres::Connection::Options options, PostgresOptions());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres,
                     db::postgres::Connection::Connect(options));
    ASSIGN_OR_RETURN(const int applied, db::fleet::MigrateFleet(*postgres));
    RETURN_IF_ERROR(db::fleet::GrantFleetRoles(*postgres, roles_));
    ASSIGN_OR_RETURN(const int version, db::fleet::FleetSchemaVersion(*postgres));
    Print(cli::output::JsonObject({{"applied", applied}, {"schema_version", version}}),
          absl::StrCat("schema version ", version, ", ", applied, " migrations applied"));
    return absl::OkStatus();
  }

  db::fleet::FleetRoles roles_;
};

class StatusCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "status", "nodes, lag, versions, releases and the queue",
            [this] { return Run(); });
  }

 private:
  absl::Status Run() {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const db::fleet::FleetCountsStatus counts, db::fleet::CountFleet(*postgres));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeStatus> nodes,
                     db::fleet::ListNodes(*postgres));
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    ASSIGN_OR_RETURN(const db::fleet::FleetDiff waiting, db::fleet::DiffPooled(*postgres, {}, 1));
    const int64_t promoted = served.promoted() != nullptr ? served.promoted()->number : 0;
    const int64_t canary = served.canary() != nullptr ? served.canary()->number : 0;
    json_ ? PrintJson(counts, nodes, promoted, canary, waiting)
          : Print(counts, nodes, promoted, canary, waiting);
    return absl::OkStatus();
  }

  // "5", and how what the node has differs from it.
  static std::string ReleaseOf(const db::fleet::NodeStatus& node) {
    std::string text = absl::StrCat(node.release);
    if (node.release_missing > 0) absl::StrAppend(&text, " -", node.release_missing);
    if (node.release_extra > 0) absl::StrAppend(&text, " +", node.release_extra);
    return text;
  }

  static cli::output::Fields NodeFields(const db::fleet::NodeStatus& node) {
    const auto age = [](absl::Duration time, const std::string& shown) {
      return cli::output::Value(absl::ToDoubleSeconds(time)).Shown(shown);
    };
    const absl::Duration offset = absl::AbsDuration(node.clock_offset);
    return {{"name", "NODE", node.name},
            {"silent_seconds", "SEEN",
             age(node.silence, absl::StrCat(node.silence > kSilent ? "silent " : "",
                                            cli::output::FormatAge(node.silence)))},
            {"release", "RELEASE", cli::output::Value(node.release).Shown(ReleaseOf(node))},
            {"release_missing", "", node.release_missing},
            {"release_extra", "", node.release_extra},
            {"outbox_depth", "OUTBOX", node.outbox_depth},
            {"outbox_lag_seconds", "LAG",
             age(node.outbox_lag,
                 node.outbox_depth == 0 ? "-" : cli::output::FormatAge(node.outbox_lag))},
            {"outbox_dropped", "DROPPED", node.outbox_dropped},
            {"tuning_count", "TUNINGS", node.tuning_count},
            {"clock_offset_seconds", "", absl::ToDoubleSeconds(node.clock_offset)},
            {"", "CLOCK",
             offset < absl::Seconds(1)
                 ? "ok"
                 : absl::StrCat(node.clock_offset < absl::ZeroDuration() ? "-" : "+",
                                cli::output::FormatAge(offset))},
            {"", "VERSION", absl::StrCat(node.daemon_version, "/", node.agent_version)},
            {"agent_version", "", node.agent_version},
            {"daemon_version", "", node.daemon_version},
            {"devices", "DEVICES", node.devices},
            {"unapplied_pins", "", node.unapplied_pins},
            {"pin_error", "", node.pin_error},
            {"unapplied_bans", "", node.unapplied_bans},
            {"ban_error", "", node.ban_error},
            {"last_error", "", node.last_error},
            {"", "ERROR",
             !node.last_error.empty()  ? node.last_error
             : !node.ban_error.empty() ? node.ban_error
                                       : node.pin_error}};
  }

  static void PrintJson(const db::fleet::FleetCountsStatus& counts,
                        const std::vector<db::fleet::NodeStatus>& nodes, int64_t promoted,
                        int64_t canary, const db::fleet::FleetDiff& waiting) {
    const cli::output::Json document =
        cli::output::JsonObject({{"promoted", promoted},
                                 {"canary", canary},
                                 {"waiting_changes", waiting.change_count},
                                 {"lesser_evidence_changes", waiting.lesser_count},
                                 {"environments", counts.environments},
                                 {"problems", counts.problems},
                                 {"evidence", counts.evidence},
                                 {"pooled", counts.pooled},
                                 {"waiting_to_pool", counts.waiting_to_pool},
                                 {"tasks_queued", counts.tasks_queued},
                                 {"tasks_leased", counts.tasks_leased},
                                 {"tasks_dead", counts.tasks_dead},
                                 {"pins", counts.pins},
                                 {"bans", counts.bans},
                                 {"nodes", cli::output::JsonRows(nodes, NodeFields)}});
    std::cout << document.text << '\n';
  }

  static void Print(const db::fleet::FleetCountsStatus& counts,
                    const std::vector<db::fleet::NodeStatus>& nodes, int64_t promoted,
                    int64_t canary, const db::fleet::FleetDiff& waiting) {
    int64_t without_pin = 0;
    int64_t without_ban = 0;
    int64_t silent = 0;
    for (const db::fleet::NodeStatus& node : nodes) {
      without_pin += node.unapplied_pins > 0 ? 1 : 0;
      without_ban += node.unapplied_bans > 0 ? 1 : 0;
      silent += node.silence > kSilent ? 1 : 0;
    }
    if (!nodes.empty()) std::cout << cli::output::TableOf(nodes, NodeFields).Render(0, false);
    std::cout << nodes.size() << " nodes";
    if (silent > 0) std::cout << ", " << silent << " silent";
    std::cout << "; fleet release " << promoted;
    if (canary != 0) std::cout << ", canary " << canary;
    std::cout << "; " << waiting.change_count << " changes wait for a promotion";
    if (waiting.lesser_count > 0) {
      std::cout << ", and "
                << db::fleet::LesserEvidence(waiting.lesser_count,
                                             db::fleet::PromotionScope().min_evidence);
    }
    std::cout << "; " << counts.pins << " pins";
    if (without_pin > 0) std::cout << ", not applied on " << without_pin << " nodes";
    std::cout << "; " << counts.bans << " bans";
    if (without_ban > 0) std::cout << ", not applied on " << without_ban << " nodes";
    std::cout << '\n'
              << counts.evidence << " tunings of " << counts.problems << " problems in "
              << counts.environments << " environments, " << counts.pooled << " pooled, "
              << counts.waiting_to_pool << " to be\n"
              << "queue: " << counts.tasks_queued << " waiting, " << counts.tasks_leased
              << " being tuned, " << counts.tasks_dead << " dead\n";
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<db::postgres::Connection>> FleetCommand::Connect() const {
  ASSIGN_OR_RETURN(db::postgres::Connection::Options options, PostgresOptions());
  options.stop = FleetStopRequested;
  ASSIGN_OR_RETURN(std::unique_ptr<db::postgres::Connection> postgres,
                   db::postgres::Connection::Connect(options));
  RETURN_IF_ERROR(db::fleet::CheckFleetSchema(*postgres));
  return postgres;
}

absl::StatusOr<db::postgres::Connection::Options> FleetCommand::PostgresOptions() const {
  return Chosen()->flags->Resolve();
}

const FleetCommand::Verb* FleetCommand::Chosen() const {
  // A verb below another is added after it, and both are parsed.
  const auto found = std::find_if(verbs_.rbegin(), verbs_.rend(),
                                  [](const Verb& verb) { return verb.app->parsed(); });
  return found != verbs_.rend() ? &*found : nullptr;
}

std::optional<cli::app::ExitCode> FleetCommand::RunIfChosen() {
  const Verb* const chosen = Chosen();
  return chosen != nullptr ? std::make_optional(chosen->run()) : std::nullopt;
}

CLI::App* FleetCommand::AddPlainVerb(CLI::App& root, const std::string& name,
                                     const std::string& description,
                                     std::function<cli::app::ExitCode()> run) {
  CLI::App* const app = root.add_subcommand(name, description);
  verbs_.push_back({app, std::move(run), std::make_unique<PostgresFlags>()});
  return app;
}

void FleetCommand::AddFlags(CLI::App* app) {
  verbs_.back().flags->Register(*app);
  app->add_flag("--json", json_, "print JSON");
}

void FleetCommand::Print(const cli::output::Json& json, const std::string& text) const {
  std::cout << (json_ ? json.text : text) << '\n';
}

void FleetCommand::AddAuthor(CLI::App* app) {
  author_ = cli::input::AuthorOf("");
  app->add_option("--author", author_, "who decides it")->capture_default_str();
}

void FleetCommand::AddDecision(CLI::App* app) {
  AddAuthor(app);
  app->add_option("--reason", reason_, "why")->required();
}

absl::Status FleetCommand::CheckAuthor() const { return CheckText("--author", author_, 128); }

absl::Status FleetCommand::CheckDecision() const {
  RETURN_IF_ERROR(CheckAuthor());
  return CheckText("--reason", reason_, 400);
}

std::vector<std::unique_ptr<FleetCommand>> AllFleetCommands() {
  std::vector<std::unique_ptr<FleetCommand>> all;
  for (const auto& make :
       {NewAgentCommand, NewProbeCommand, NewStatusCommand, NewFleetTuneCommand,
        NewFleetReleaseCommand, NewFleetPinCommand, NewFleetBanCommand, NewUpgradeCommand,
        NewFleetReportCommand, NewExportNodesCommand, NewPruneCommand, NewMigrateCommand}) {
    all.push_back(make());
  }
  return all;
}

std::unique_ptr<FleetCommand> NewMigrateCommand() { return std::make_unique<MigrateCommand>(); }
std::unique_ptr<FleetCommand> NewStatusCommand() { return std::make_unique<StatusCommand>(); }

cli::app::ExitCode SayResult(const absl::Status& status) {
  if (!status.ok()) std::cerr << "error: " << status.message() << '\n';
  return cli::app::ExitCodeOf(status);
}

cli::app::ExitCode SayResult(const absl::StatusOr<cli::app::ExitCode>& code) {
  return code.ok() ? *code : SayResult(code.status());
}

bool FleetStopRequested() { return stop_requested != 0; }

bool FleetReloadRequested() {
  if (reload_requested == 0) return false;
  reload_requested = 0;
  return true;
}

void CatchFleetReload() {
  struct sigaction action {};
  action.sa_handler = [](int) { reload_requested = 1; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, &action, nullptr);
}

void CatchFleetSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

absl::Status PoolEverything(db::postgres::Connection& postgres) {
  db::fleet::FleetNames names(&postgres);
  while (true) {
    ASSIGN_OR_RETURN(const int64_t pooled,
                     db::fleet::PoolQueued(postgres, names, 100, PoolEvidence));
    if (pooled > 0) continue;
    ASSIGN_OR_RETURN(const int64_t left, db::fleet::CountPoolQueue(postgres));
    if (left == 0) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace convtune::fleet
