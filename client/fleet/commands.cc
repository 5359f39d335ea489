#include "client/fleet/commands.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/app/settings.h"
#include "client/cli/input/options.h"
#include "client/cli/output/progress.h"
#include "client/fleet/pooling.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

constexpr int kMostPasses = 5;  // of PoolEverything

volatile std::sig_atomic_t stop_requested = 0;
constexpr absl::Duration kHeedingLook = absl::Milliseconds(500);

// Checks a text that others read.
CLI::Validator ShortText(size_t most) {
  return CLI::Validator(
      [most](const std::string& text) -> std::string {
        if (text.empty() || text.size() > most) {
          return absl::StrCat("must be 1 to ", most, " bytes");
        }
        for (const char c : text) {
          if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            return "must have no control characters";
          }
        }
        return "";
      },
      "");
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  if (path == "-") {
    const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
    return std::string(absl::StripAsciiWhitespace(text));
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--postgres-file: ", path, ": ", std::strerror(errno)));
  }
  // Kubernetes mounts secrets for a group, with root as the owner.
  const mode_t forbidden = info.st_uid == 0 ? 027 : 077;
  if ((info.st_mode & forbidden) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--postgres-file: %s: must be for its owner alone (chmod 600), has mode %o",
                        path, info.st_mode & 0777));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--postgres-file: cannot read ", path));
  }
  return std::string(absl::StripAsciiWhitespace(text));
}

class MigrateCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "migrate", "make the fleet's tables, or bring them up to date");
    app->add_option("--agent-role", roles_.agents,
                    "role of PostgreSQL that gets the rights of agents; made if it is not there");
    app->add_option("--operator-role", roles_.operators,
                    "the same for operators, who also decide on releases, pins and bans");
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const db::postgres::Connection::Options options, flags().Resolve());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres,
                     db::postgres::Connection::Connect(options));
    ASSIGN_OR_RETURN(const int applied, db::fleet::MigrateFleet(*postgres));
    RETURN_IF_ERROR(db::fleet::GrantFleetRoles(*postgres, roles_));
    ASSIGN_OR_RETURN(const int version, db::fleet::FleetSchemaVersion(*postgres));
    return PrintOutcome(
        context, {{"applied", applied}, {"schema_version", version}},
        absl::StrCat("schema version ", version, ", ", applied, " migrations applied"));
  }

 private:
  db::fleet::FleetRoles roles_;
};

class PruneCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "prune", "remove what newer tunings replaced and nothing refers to");
    cli::input::AddTime(*app, "--keep", "what is younger stays", [this](absl::Duration time) {
      keep_ = time;
    })->default_str("2160h");
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const db::fleet::Thinned thinned, db::fleet::ThinFleet(*postgres, keep_));
    return PrintOutcome(
        context,
        {{"evidence", thinned.evidence}, {"tasks", thinned.tasks}, {"payloads", thinned.payloads}},
        absl::StrCat(thinned.evidence, " superseded tunings, ", thinned.tasks, " ended tasks and ",
                     thinned.payloads, " unused pooled tunings removed"));
  }

 private:
  absl::Duration keep_ = absl::Hours(24 * 90);
};

}  // namespace

void PostgresFlags::Register(CLI::App& app) {
  const auto add = [&app](const char* name, std::string& value, const char* variable,
                          const char* type, const char* description) {
    return app.add_option(name, value, description)
        ->envname(variable)
        ->type_name(type)
        ->group(cli::app::kCommonOptions);
  };
  add("--postgres", conninfo, "CONVTUNE_POSTGRES", "CONNINFO",
      "libpq connection string without a password; default: PG* variables");
  add("--postgres-file", file, "CONVTUNE_POSTGRES_FILE", "FILE",
      "file with the connection string, which may have a password (mode 0600); -: standard input");
  add("--schema", schema, "CONVTUNE_FLEET_SCHEMA", "NAME",
      "PostgreSQL schema of the fleet's tables")
      ->capture_default_str();
  cli::input::AddTime(
      app, "--postgres-timeout", "how long PostgreSQL may take for one statement",
      [this](absl::Duration time) { timeout = time; }, absl::Seconds(1), absl::Hours(24))
      ->envname("CONVTUNE_POSTGRES_TIMEOUT")
      ->group(cli::app::kCommonOptions)
      ->default_str("60s");
}

absl::StatusOr<db::postgres::Connection::Options> PostgresFlags::Resolve() const {
  db::postgres::Connection::Options options;
  options.schema = schema;
  options.conninfo = conninfo;
  options.say = [](const std::string& words) { std::cerr << words << '\n'; };
  options.statement_timeout = timeout;
  if (!file.empty()) {
    if (!conninfo.empty()) {
      return absl::InvalidArgumentError(
          "--postgres-file: cannot be given together with --postgres");
    }
    ASSIGN_OR_RETURN(options.conninfo, ReadSecretFile(file));
    return options;
  }
  static const std::regex kPassword(R"((^|[\s?&])password\s*=|^\w+://[^/@]*:[^/@]*@)");
  if (std::regex_search(conninfo, kPassword)) {
    return absl::InvalidArgumentError(
        "--postgres: must have no password, which everybody on this machine could read: put the "
        "connection string into a file for --postgres-file, or the password into ~/.pgpass");
  }
  return options;
}

absl::StatusOr<std::unique_ptr<db::postgres::Connection>> FleetCommand::Connect() const {
  ASSIGN_OR_RETURN(db::postgres::Connection::Options options, flags_.Resolve());
  options.stop = FleetStopRequested;
  ASSIGN_OR_RETURN(std::unique_ptr<db::postgres::Connection> postgres,
                   db::postgres::Connection::Connect(options));
  RETURN_IF_ERROR(db::fleet::CheckFleetSchema(*postgres));
  return postgres;
}

std::vector<std::unique_ptr<cli::app::Command>> RegisterFleetCommands(const PostgresFlags& flags,
                                                                      CLI::App& root) {
  std::vector<std::unique_ptr<cli::app::Command>> commands;
  for (NewFleetVerb* const make :
       {NewAgentCommand, NewProbeCommand, NewStatusCommand, NewFleetTuneCommand,
        NewFleetReleaseCommand, NewFleetPinCommand, NewFleetUnpinCommand, NewFleetPinsCommand,
        NewFleetBanCommand, NewNodeCommand, NewUpgradeCommand, NewFleetReportCommand,
        NewExportNodesCommand, NewPruneCommand, NewMigrateCommand}) {
    commands.push_back(make(flags));
    commands.back()->Register(root);
  }
  return commands;
}

void CatchFleetSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // what cannot be written has its error
}

bool FleetStopRequested() { return stop_requested != 0; }

cli::app::ExitCode FailFleet(cli::app::Context& context, const absl::Status& status) {
  context.SayError(std::string(status.message()));
  return cli::app::ExitCodeOf(status);
}

void DecisionArgs::RegisterAuthor(CLI::App& app) {
  author = cli::input::AuthorOf("");
  app.add_option("--author", author, "who decides it")
      ->check(ShortText(128))
      ->capture_default_str();
}

void DecisionArgs::Register(CLI::App& app) {
  RegisterAuthor(app);
  app.add_option("--reason", reason, "why")->check(ShortText(400))->required();
}

void DecisionArgs::RegisterSign(CLI::App& app) {
  app.add_option("--sign", key_file, "PEM file with the private key that signs the decision")
      ->envname("CONVTUNE_FLEET_SIGN");
}

absl::StatusOr<db::fleet::FleetDecision> DecisionArgs::Read() const {
  db::fleet::FleetDecision decision{author, reason, nullptr};
  if (key_file.empty()) return decision;
  ASSIGN_OR_RETURN(db::bundle::BundleSigningKey key, db::bundle::BundleSigningKey::Read(key_file));
  decision.key = std::make_shared<const db::bundle::BundleSigningKey>(std::move(key));
  return decision;
}

void WaitArgs::Register(CLI::App& app) {
  cli::input::AddTime(app, "--wait",
                      "wait so long at most until all living nodes that it concerns have heeded it",
                      [this](absl::Duration time) { most = time; });
}

absl::StatusOr<cli::app::ExitCode> WaitArgs::Wait(
    cli::app::Context& context,
    const std::function<absl::StatusOr<db::fleet::Heeding>()>& read) const {
  if (!most.has_value()) return cli::app::ExitCode::kDone;
  CatchFleetSignals();
  const SteadyTime end = SteadyTime::Now() + *most;
  ASSIGN_OR_RETURN(db::fleet::Heeding now, read());
  if (now.concerned == 0) {
    context.Say("concerns no node");
    return cli::app::ExitCode::kDone;
  }
  std::string shown;
  {
    cli::output::ProgressBar bar(context.io());
    while (true) {
      const std::string line = absl::StrCat("heeded by ", now.living - std::ssize(now.missing),
                                            " of ", now.living, " living nodes that it concerns");
      bar.Show(line);
      // There is no bar without a terminal.
      if (!context.io().err_is_terminal && line != shown) context.Say(line);
      shown = line;
      const bool heeded = now.living > 0 && now.missing.empty();
      if (heeded || FleetStopRequested() || SteadyTime::Now() >= end) break;
      absl::SleepFor(std::min(kHeedingLook, end - SteadyTime::Now()));
      ASSIGN_OR_RETURN(now, read());
    }
  }
  if (!now.silent.empty()) {
    context.Say("silent, and will heed it when they are back: ", absl::StrJoin(now.silent, ", "));
  }
  if (now.living > 0 && now.missing.empty()) return cli::app::ExitCode::kDone;
  context.SayError(
      "--wait: ",
      FleetStopRequested() ? "stopped" : absl::StrCat("after ", absl::FormatDuration(*most)), ", ",
      now.living == 0 ? "no living node is concerned"
                      : absl::StrCat("not heeded by ", absl::StrJoin(now.missing, ", ")),
      "; the decision stands");
  return cli::app::ExitCode::kUnheeded;
}

void AddHeeding(const db::fleet::Heeding& heeding, bool with_names, cli::output::Fields* fields) {
  std::vector<std::string> names = heeding.missing;
  for (const std::string& name : heeding.silent) names.push_back(absl::StrCat(name, " (silent)"));
  fields->insert(fields->end(),
                 {{"heeded", "", heeding.heeded()},
                  {"concerned", "", heeding.concerned},
                  {"", "HEEDED", absl::StrCat(heeding.heeded(), " of ", heeding.concerned)},
                  {"missing", "", heeding.missing},
                  {"silent", "", heeding.silent},
                  {"", with_names ? "NOT HEEDED BY" : "", absl::StrJoin(names, ", ")}});
}

cli::app::ExitCode PrintOutcome(cli::app::Context& context, const cli::output::Fields& document,
                                const std::string& text) {
  context.PrintJson(document);
  if (context.format() != cli::app::Format::kJson) context.io().out << text << '\n';
  return cli::app::ExitCode::kDone;
}

cli::output::Fields DeviationFields(const db::fleet::NodeDeviation& node) {
  return {{"node", "", node.node},
          {"environment", "", node.environment},
          {"dissents", "", node.dissents},
          {"shared", "", node.shared}};
}

void SayDeviating(cli::app::Context& context,
                  const std::vector<db::fleet::NodeDeviation>& deviating) {
  for (const db::fleet::NodeDeviation& node : deviating) {
    context.Say("left out: ", node.node, " differs from other nodes in ", node.dissents, " of ",
                node.shared, " problems of ", node.environment);
  }
}

absl::Status PoolEverything(cli::app::Context& context, db::postgres::Connection& postgres) {
  ASSIGN_OR_RETURN(const bool may_pool, db::fleet::MayPool(postgres));
  db::fleet::FleetNames names(&postgres);
  if (may_pool) RETURN_IF_ERROR(db::fleet::QueueUnpooled(postgres));
  // Who deviates follows from what is pooled, and what is pooled from who deviates.
  bool settled = !may_pool;
  for (int pass = 0; !settled && pass < kMostPasses; ++pass) {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeDeviation> deviating,
                     db::fleet::ListDeviating(postgres));
    RETURN_IF_ERROR(db::fleet::QueueForDeviations(postgres, deviating));
    settled = true;
    for (int64_t pooled = 1; pooled > 0;) {
      ASSIGN_OR_RETURN(pooled,
                       db::fleet::PoolQueued(postgres, names, 100, PoolEvidence, deviating));
      if (pooled > 0) settled = false;
    }
  }
  ASSIGN_OR_RETURN(const int64_t left, db::fleet::CountPoolQueue(postgres));
  if (left > 0) {
    context.Say("warning: what nodes delivered last for ", left, " problems does not count yet: ",
                may_pool ? "another transaction holds it" : "this login may not pool it");
  }
  return absl::OkStatus();
}

std::unique_ptr<cli::app::Command> NewMigrateCommand(const PostgresFlags& flags) {
  return std::make_unique<MigrateCommand>(flags);
}
std::unique_ptr<cli::app::Command> NewPruneCommand(const PostgresFlags& flags) {
  return std::make_unique<PruneCommand>(flags);
}

}  // namespace convtune::fleet
