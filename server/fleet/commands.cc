#include "server/fleet/commands.h"

#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "db/fleet/nodes.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"
#include "server/fleet/agent.h"
#include "server/fleet/pooling.h"

namespace convtune::fleet {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

std::string UserName() {
  const passwd* const entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : "";
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

class MigrateCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    app_ = AddVerb(root, "migrate", "make the fleet's tables, or bring them up to date");
  }
  std::optional<cli::ExitCode> RunIfChosen() override {
    if (!app_->parsed()) return std::nullopt;
    return SayResult(Run());
  }

 private:
  absl::Status Run() {
    ASSIGN_OR_RETURN(const db::fleet::Postgres::Options options, flags_.Resolve());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::fleet::Postgres> postgres,
                     db::fleet::Postgres::Connect(options));
    ASSIGN_OR_RETURN(const int applied, db::fleet::MigrateFleet(*postgres));
    ASSIGN_OR_RETURN(const int version, db::fleet::FleetSchemaVersion(*postgres));
    if (json_) {
      std::cout << cli::JsonObject().Add("applied", applied).Add("schema_version", version).Take()
                << '\n';
    } else {
      std::cout << "schema version " << version << ", " << applied << " migrations applied\n";
    }
    return absl::OkStatus();
  }

  CLI::App* app_ = nullptr;
};

class AgentCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    app_ = AddVerb(root, "agent", "work beside a daemon until SIGTERM");
    app_->add_option("--node", node_, "name of this node in the fleet; default: the host's")
        ->envname("CONVTUNE_NODE");
    app_->add_option("--address", address_, "the daemon: unix:PATH or HOST:PORT")
        ->envname("CONVTUNE_ADDRESS");
    app_->add_option("--tls-ca", tls_.ca, "PEM file, for HOST:PORT")->envname("CONVTUNE_TLS_CA");
    app_->add_option("--tls-cert", tls_.cert, "PEM file")->envname("CONVTUNE_TLS_CERT");
    app_->add_option("--tls-key", tls_.key, "PEM file")->envname("CONVTUNE_TLS_KEY");
    app_->add_flag("--no-tune", no_tune_, "take no problems that the fleet has queued");
    app_->add_option("--lease", lease_, "how long a problem is this node's without a word")
        ->capture_default_str();
    app_->add_option("--refresh", refresh_, "between heartbeats")->capture_default_str();
    app_->add_flag("--verify-upgrades", verify_upgrades_,
                   "queue what has to be verified when the node has another cuDNN or driver")
        ->envname("CONVTUNE_VERIFY_UPGRADES");
    app_->add_option("--keep-superseded", keep_, "what newer tunings replaced stays this long")
        ->envname("CONVTUNE_KEEP_SUPERSEDED")
        ->capture_default_str();
    app_->add_option("--metrics-address", metrics_address_,
                     "IP:PORT for Prometheus: plain HTTP, so loopback or a trusted network")
        ->envname("CONVTUNE_FLEET_METRICS_ADDRESS");
  }
  std::optional<cli::ExitCode> RunIfChosen() override {
    if (!app_->parsed()) return std::nullopt;
    return SayResult(Run());
  }

 private:
  absl::Status Run() {
    CatchFleetSignals();
    const SystemClock clock;
    Agent::Options options;
    ASSIGN_OR_RETURN(options.postgres, flags_.Resolve());
    ASSIGN_OR_RETURN(
        options.daemon.address,
        Address::Parse(address_.empty() ? absl::StrCat("unix:", FirstSocket(ClientSocketPaths()))
                                        : address_));
    options.daemon.tls = tls_;
    options.node = node_.empty() ? HostName() : node_;
    options.version = CONVTUNE_VERSION;
    options.tune = !no_tune_;
    ASSIGN_OR_RETURN(options.lease, cli::ParseTime("--lease", lease_));
    ASSIGN_OR_RETURN(options.refresh, cli::ParseTime("--refresh", refresh_));
    ASSIGN_OR_RETURN(options.keep, cli::ParseTime("--keep-superseded", keep_));
    options.verify_upgrades = verify_upgrades_;
    options.clock = &clock;
    options.stop = FleetStopRequested;
    options.log = [](const std::string& text) {
      std::cerr << absl::FormatTime("%Y-%m-%d %H:%M:%E3S ", absl::Now(), absl::UTCTimeZone())
                << text << std::endl;
    };
    const auto log = options.log;
    ASSIGN_OR_RETURN(const std::unique_ptr<Agent> agent, Agent::Create(std::move(options)));
    std::unique_ptr<metrics::AgentMetricsServer> metrics;
    if (!metrics_address_.empty()) {
      ASSIGN_OR_RETURN(metrics, metrics::AgentMetricsServer::Create(
                                    metrics_address_, [&] { return agent->Metrics(); }));
      log(absl::StrCat("metrics at ", metrics->url()));
    }
    agent->Run();
    return absl::OkStatus();
  }

  CLI::App* app_ = nullptr;
  std::string node_;
  std::string address_;
  TlsFiles tls_;
  bool no_tune_ = false;
  std::string lease_ = "60s";
  std::string refresh_ = "10s";
  bool verify_upgrades_ = false;
  std::string keep_ = "2160h";
  std::string metrics_address_;
};

class StatusCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    app_ = AddVerb(root, "status", "nodes, lag, versions, releases and the queue");
  }
  std::optional<cli::ExitCode> RunIfChosen() override {
    if (!app_->parsed()) return std::nullopt;
    return SayResult(Run());
  }

 private:
  absl::Status Run() {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::fleet::Postgres> postgres, Connect());
    ASSIGN_OR_RETURN(const db::fleet::FleetCountsStatus counts, db::fleet::CountFleet(*postgres));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeStatus> nodes,
                     db::fleet::ListNodes(*postgres));
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    ASSIGN_OR_RETURN(const db::fleet::FleetDiff waiting,
                     db::fleet::DiffPooled(*postgres, /*all=*/false, 1));
    const int64_t promoted = served.promoted() != nullptr ? served.promoted()->number : 0;
    const int64_t canary = served.canary() != nullptr ? served.canary()->number : 0;
    json_ ? PrintJson(counts, nodes, promoted, canary, waiting.change_count)
          : Print(counts, nodes, promoted, canary, waiting.change_count);
    return absl::OkStatus();
  }

  static void PrintJson(const db::fleet::FleetCountsStatus& counts,
                        const std::vector<db::fleet::NodeStatus>& nodes, int64_t promoted,
                        int64_t canary, int64_t waiting) {
    std::vector<std::string> rows;
    for (const db::fleet::NodeStatus& node : nodes) {
      rows.push_back(cli::JsonObject()
                         .Add("name", node.name)
                         .Add("silent_seconds", absl::ToDoubleSeconds(node.silence))
                         .Add("agent_version", node.agent_version)
                         .Add("daemon_version", node.daemon_version)
                         .Add("clock_offset_seconds", absl::ToDoubleSeconds(node.clock_offset))
                         .Add("outbox_depth", node.outbox_depth)
                         .Add("outbox_dropped", node.outbox_dropped)
                         .Add("outbox_lag_seconds", absl::ToDoubleSeconds(node.outbox_lag))
                         .Add("tuning_count", node.tuning_count)
                         .Add("release", node.release)
                         .Add("devices", node.devices)
                         .Add("last_error", node.last_error)
                         .Take());
    }
    std::cout << cli::JsonObject()
                     .Add("promoted", promoted)
                     .Add("canary", canary)
                     .Add("waiting_changes", waiting)
                     .Add("environments", counts.environments)
                     .Add("problems", counts.problems)
                     .Add("evidence", counts.evidence)
                     .Add("pooled", counts.pooled)
                     .Add("waiting_to_pool", counts.waiting_to_pool)
                     .Add("tasks_queued", counts.tasks_queued)
                     .Add("tasks_leased", counts.tasks_leased)
                     .Add("tasks_dead", counts.tasks_dead)
                     .Add("pins", counts.pins)
                     .AddRaw("nodes", cli::JsonArray(rows))
                     .Take()
              << '\n';
  }

  static void Print(const db::fleet::FleetCountsStatus& counts,
                    const std::vector<db::fleet::NodeStatus>& nodes, int64_t promoted,
                    int64_t canary, int64_t waiting) {
    cli::Table table({{"NODE"},
                      {"SEEN", cli::Align::kRight},
                      {"RELEASE", cli::Align::kRight},
                      {"OUTBOX", cli::Align::kRight},
                      {"LAG", cli::Align::kRight},
                      {"DROPPED", cli::Align::kRight},
                      {"TUNINGS", cli::Align::kRight},
                      {"CLOCK"},
                      {"VERSION"},
                      {"DEVICES"},
                      {"ERROR"}});
    for (const db::fleet::NodeStatus& node : nodes) {
      const absl::Duration offset = absl::AbsDuration(node.clock_offset);
      table.Add({node.name, cli::FormatAge(node.silence), absl::StrCat(node.release),
                 absl::StrCat(node.outbox_depth),
                 node.outbox_depth == 0 ? "-" : cli::FormatAge(node.outbox_lag),
                 absl::StrCat(node.outbox_dropped), absl::StrCat(node.tuning_count),
                 offset < absl::Seconds(1)
                     ? "ok"
                     : absl::StrCat(node.clock_offset < absl::ZeroDuration() ? "-" : "+",
                                    cli::FormatAge(offset)),
                 absl::StrCat(node.daemon_version, "/", node.agent_version),
                 absl::StrJoin(node.devices, " "), node.last_error});
    }
    if (!nodes.empty()) std::cout << table.Render(0, false);
    std::cout << nodes.size() << " nodes; release " << promoted;
    if (canary != 0) std::cout << ", canary " << canary;
    std::cout << "; " << waiting << " changes wait for a promotion; " << counts.pins << " pins\n"
              << counts.evidence << " tunings of " << counts.problems << " problems in "
              << counts.environments << " environments, " << counts.pooled << " pooled, "
              << counts.waiting_to_pool << " to be\n"
              << "queue: " << counts.tasks_queued << " waiting, " << counts.tasks_leased
              << " being tuned, " << counts.tasks_dead << " dead\n";
  }

  CLI::App* app_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<db::fleet::Postgres>> FleetCommand::Connect() const {
  ASSIGN_OR_RETURN(const db::fleet::Postgres::Options options, flags_.Resolve());
  ASSIGN_OR_RETURN(std::unique_ptr<db::fleet::Postgres> postgres,
                   db::fleet::Postgres::Connect(options));
  RETURN_IF_ERROR(db::fleet::CheckFleetSchema(*postgres));
  return postgres;
}

CLI::App* FleetCommand::AddVerb(CLI::App& root, const std::string& name,
                                const std::string& description) {
  CLI::App* const app = root.add_subcommand(name, description);
  flags_.Register(*app);
  app->add_flag("--json", json_, "print JSON");
  return app;
}

void FleetCommand::AddDecision(CLI::App* app) {
  author_ = UserName();
  app->add_option("--author", author_, "who decides it")->capture_default_str();
  app->add_option("--reason", reason_, "why")->required();
}

absl::Status FleetCommand::CheckDecision() const {
  if (author_.empty() || author_.size() > 128) {
    return absl::InvalidArgumentError("--author: must be 1 to 128 bytes");
  }
  if (reason_.empty() || reason_.size() > 400) {
    return absl::InvalidArgumentError("--reason: must be 1 to 400 bytes");
  }
  for (const std::string* text : {&author_, &reason_}) {
    for (const char c : *text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        return absl::InvalidArgumentError(absl::StrCat(text == &author_ ? "--author" : "--reason",
                                                       ": must have no control characters"));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<std::unique_ptr<FleetCommand>> AllFleetCommands() {
  std::vector<std::unique_ptr<FleetCommand>> all;
  all.push_back(NewAgentCommand());
  all.push_back(NewStatusCommand());
  all.push_back(NewFleetTuneCommand());
  all.push_back(NewFleetReleaseCommand());
  all.push_back(NewFleetPinCommand());
  all.push_back(NewUpgradeCommand());
  all.push_back(NewFleetReportCommand());
  all.push_back(NewPruneCommand());
  all.push_back(NewMigrateCommand());
  return all;
}

std::unique_ptr<FleetCommand> NewMigrateCommand() { return std::make_unique<MigrateCommand>(); }
std::unique_ptr<FleetCommand> NewAgentCommand() { return std::make_unique<AgentCommand>(); }
std::unique_ptr<FleetCommand> NewStatusCommand() { return std::make_unique<StatusCommand>(); }

cli::ExitCode SayResult(const absl::Status& status) {
  if (!status.ok()) std::cerr << "error: " << status.message() << '\n';
  return cli::ExitCodeOf(status);
}

bool FleetStopRequested() { return stop_requested != 0; }

void CatchFleetSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

absl::Status PoolEverything(db::fleet::Postgres& postgres) {
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
