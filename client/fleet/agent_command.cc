// The verb agent, and the probe that asks whether one is alive.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/input/options.h"
#include "client/cli/output/units.h"
#include "client/fleet/agent.h"
#include "client/fleet/commands.h"
#include "db/bundle/bundle_signature.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"
#include "proto/base/systemd.h"
#include "proto/base/unique_fd.h"
#include "proto/base/variables.h"
#include "proto/monitoring/log.h"

namespace convtune::fleet {
namespace {

// A stop comes within ten seconds, even where two addresses say nothing.
constexpr absl::Duration kAgentConnectTimeout = absl::Seconds(4);
// After so many heartbeats without a word the server frees the node's name.
constexpr int kAgentIdleRefreshes = 4;
constexpr absl::Duration kBetweenSigns = absl::Seconds(1);  // of life

volatile std::sig_atomic_t reload_requested = 0;

// From then on SIGHUP asks for a reload.
void CatchReload() {
  struct sigaction action {};
  action.sa_handler = [](int) { reload_requested = 1; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, &action, nullptr);
}

// An AliveSign says that the agent goes on: to systemd's watchdog, and to the probe of a pod by
// the time of a file. For one thread.
class AliveSign {
 public:
  // Makes the file, for its owner alone, unless `path` is empty. INVALID_ARGUMENT:
  // it cannot be made.
  static absl::StatusOr<AliveSign> Create(const std::string& path) {
    if (path.empty()) return AliveSign(path);
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (file.get() >= 0) return AliveSign(path);
    return absl::InvalidArgumentError(
        absl::StrCat("--alive-file: cannot make ", path, ": ", std::strerror(errno)));
  }

  // At most one sign a second, so it may be called as often as one likes.
  void Give() {
    const SteadyTime now = SteadyTime::Now();
    if (now < next_) return;
    next_ = now + kBetweenSigns;
    TellWatchdog();
    // A sign that cannot be given is one that the probe misses.
    if (!path_.empty()) utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
  }

 private:
  explicit AliveSign(std::string path) : path_(std::move(path)) {}

  std::string path_;
  SteadyTime next_ = SteadyTime::InfinitePast();
};

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

CLI::Option* AddAliveFile(CLI::App* app, std::string* file) {
  return app->add_option("--alive-file", *file, "file whose time says that the agent goes on")
      ->envname("CONVTUNE_FLEET_ALIVE_FILE");
}

class AgentCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerb(root, "agent", "work beside a daemon until SIGTERM");
    using cli::input::AddTime;
    app->add_option("--node", options_.node, "name of this node in the fleet; default: the host's")
        ->envname("CONVTUNE_NODE");
    app->add_option("--address", address_, "the daemon: unix:PATH or HOST:PORT")
        ->envname("CONVTUNE_ADDRESS");
    client::TlsFiles& tls = options_.daemon.tls;
    app->add_option("--tls-ca", tls.ca, "PEM file, for HOST:PORT")->envname("CONVTUNE_TLS_CA");
    app->add_option("--tls-cert", tls.cert, "PEM file")->envname("CONVTUNE_TLS_CERT");
    app->add_option("--tls-key", tls.key, "PEM file")->envname("CONVTUNE_TLS_KEY");
    app->add_flag_callback(
        "--no-tune", [this] { options_.tune = false; },
        "take no problems that the fleet has queued");
    AddTime(
        *app, "--lease",
        "how long a problem that this node took stays its own while nothing is heard of it",
        [this](absl::Duration time) { options_.lease = time; }, absl::Seconds(1), absl::Hours(24))
        ->default_str("60s");
    AddTime(*app, "--refresh", "between heartbeats", [this](absl::Duration time) {
      options_.refresh = time;
    })->default_str("10s");
    app->add_flag("--verify-upgrades", options_.verify_upgrades,
                  "queue what has to be verified when the node has another cuDNN or driver")
        ->envname("CONVTUNE_VERIFY_UPGRADES");
    app->add_option("--require-signed-decisions", trusted_,
                    "PEM files with public keys: refuse releases, pins and bans that none of them "
                    "signed")
        ->envname("CONVTUNE_REQUIRE_SIGNED_DECISIONS");
    AddTime(*app, "--keep-superseded", "what newer tunings replaced stays this long",
            [this](absl::Duration time) { options_.keep = time; })
        ->envname("CONVTUNE_KEEP_SUPERSEDED")
        ->default_str("2160h");
    app->add_option("--metrics-address", metrics_address_,
                    "IP:PORT for Prometheus: plain HTTP, so loopback or a trusted network")
        ->envname("CONVTUNE_FLEET_METRICS_ADDRESS");
    AddAliveFile(app, &alive_file_);
    // As the daemon's.
    app->add_option("--log-format", log_format_, "text or json")
        ->envname("CONVTUNE_LOG_FORMAT")
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
    app->add_option("--log-level", log_level_, "debug, info, warn or error")
        ->envname("CONVTUNE_LOG_LEVEL")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
        ->capture_default_str();
  }

  bool warns_itself() const override { return true; }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& /*context*/) override {
    CatchFleetSignals();
    CatchReload();
    log::Init(log_format_ == "json", log_level_);
    for (const std::string& warning : UnknownVariables()) log::Warn("$0", warning);
    const SystemClock clock;
    Agent::Options options = options_;
    ASSIGN_OR_RETURN(options.postgres, flags().Resolve());
    ASSIGN_OR_RETURN(
        options.daemon.address,
        Address::Parse(
            address_.empty() ? absl::StrCat("unix:", FirstSocket(ClientSocketPaths())) : address_,
            "--address"));
    if (options.node.empty()) options.node = HostName();
    for (const std::string& file : trusted_) {
      ASSIGN_OR_RETURN(std::string key, db::bundle::ReadBundlePublicKey(file));
      options.trusted.push_back(std::move(key));
    }
    options.clock = &clock;
    ASSIGN_OR_RETURN(AliveSign alive, AliveSign::Create(alive_file_));
    // Asked wherever the agent waits, so being asked is the sign that it goes on.
    options.stop = [&alive] {
      alive.Give();
      return FleetStopRequested();
    };
    options.reload = [] {
      if (reload_requested == 0) return false;
      reload_requested = 0;
      return true;
    };
    options.read_conninfo = [this,
                             first = options.postgres.conninfo]() -> absl::StatusOr<std::string> {
      // Standard input has been read to its end.
      if (flags().file == "-") return first;
      ASSIGN_OR_RETURN(db::postgres::Connection::Options anew, flags().Resolve());
      return std::move(anew.conninfo);
    };
    options.postgres.stop = options.stop;
    options.postgres.say = nullptr;  // all agents that one lock holds up would ask at once
    options.postgres.connect_timeout = kAgentConnectTimeout;
    options.postgres.idle_timeout =
        std::max(options.postgres.statement_timeout, kAgentIdleRefreshes * options.refresh);
    ASSIGN_OR_RETURN(const std::unique_ptr<Agent> agent, Agent::Create(std::move(options)));
    std::unique_ptr<MetricsServer> metrics;
    if (!metrics_address_.empty()) {
      ASSIGN_OR_RETURN(
          metrics,
          MetricsServer::Create(metrics_address_, NewCollect([&] { return agent->Metrics(); })));
      log::Info("metrics at $0", metrics->url());
    }
    NotifySystemd("READY=1");
    agent->Run();
    NotifySystemd("STOPPING=1");
    return cli::app::ExitCode::kDone;
  }

 private:
  Agent::Options options_;  // what the flags say; Run adds the rest to a copy
  std::string address_;
  std::vector<std::string> trusted_;
  std::string metrics_address_;
  std::string alive_file_;
  std::string log_format_ = "text";
  std::string log_level_ = "info";
};

class ProbeCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerb(root, "probe", "0 if this machine's agent goes on, else 1");
    AddAliveFile(app, &alive_file_)->required();
    cli::input::AddTime(*app, "--within", "the last sign of life is younger",
                        [this](absl::Duration time) { within_ = time; })
        ->default_str("2m");
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    struct stat info {};
    if (stat(alive_file_.c_str(), &info) != 0) {
      return absl::UnknownError(
          absl::StrCat("--alive-file: ", alive_file_, ": ", std::strerror(errno)));
    }
    // Where the clock was set back, the file's time is in the future. An agent that still works
    // has written the file again since, so a time far in the future means as much as an old one.
    const absl::Duration silence =
        absl::AbsDuration(SystemClock().Now() - absl::TimeFromTimespec(info.st_mtim));
    const bool alive = silence < within_;
    PrintOutcome(
        context, {{"alive", alive}, {"silent_seconds", absl::ToDoubleSeconds(silence)}},
        absl::StrCat("the agent's last sign of life is ", cli::output::FormatAge(silence), " old"));
    return alive ? cli::app::ExitCode::kDone : cli::app::ExitCode::kFailed;
  }

 private:
  std::string alive_file_;
  absl::Duration within_ = absl::Minutes(2);
};

}  // namespace

std::unique_ptr<cli::app::Command> NewAgentCommand(const PostgresFlags& flags) {
  return std::make_unique<AgentCommand>(flags);
}
std::unique_ptr<cli::app::Command> NewProbeCommand(const PostgresFlags& flags) {
  return std::make_unique<ProbeCommand>(flags);
}

}  // namespace convtune::fleet
