// A FleetCommand is a verb of convtune-fleet. It registers itself below the
// program's options and returns the exit code when it was chosen. Tables, JSON,
// durations and exit codes are those of the command line (client/cli).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/exit_code.h"
#include "client/cli/output/fields.h"
#include "db/postgres/connection.h"
#include "server/fleet/settings.h"

namespace CLI {
class App;
}

namespace convtune::fleet {

// Says the error, if it is one, on standard error; returns the exit code.
cli::app::ExitCode SayResult(const absl::Status& status);
cli::app::ExitCode SayResult(const absl::StatusOr<cli::app::ExitCode>& code);

// Its address is registered.
class FleetCommand {
 public:
  virtual ~FleetCommand() = default;
  virtual void Register(CLI::App& root) = 0;
  // The exit code; nullopt if another verb was chosen.
  std::optional<cli::app::ExitCode> RunIfChosen();

 protected:
  // A connection to a database whose schema this program knows.
  absl::StatusOr<std::unique_ptr<db::postgres::Connection>> Connect() const;
  // Adds a verb with --postgres and so on, and --json. `run` returns an absl::Status, a
  // cli::ExitCode or an absl::StatusOr of one.
  template <typename Run>
  CLI::App* AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                    Run run) {
    CLI::App* const app = AddPlainVerb(root, name, description, [run] { return SayResult(run()); });
    AddFlags(app);
    return app;
  }
  // The same without flags.
  CLI::App* AddPlainVerb(CLI::App& root, const std::string& name, const std::string& description,
                         std::function<cli::app::ExitCode()> run);
  // Adds --author (default: the user's name, or "uid 1000").
  void AddAuthor(CLI::App* app);
  // The same and --reason, which is required.
  void AddDecision(CLI::App* app);
  // INVALID_ARGUMENT unless it is there and not too long; CheckDecision: both are.
  absl::Status CheckAuthor() const;
  absl::Status CheckDecision() const;

  // Of the verb that was chosen. Errors as PostgresFlags::Resolve.
  absl::StatusOr<db::postgres::Connection::Options> PostgresOptions() const;
  // A line: the one with --json, the other without.
  void Print(const cli::output::Json& json, const std::string& text) const;
  // An array with --json, else a table; see cli::output::Fields.
  template <typename Rows, typename FieldsOf>
  void PrintRows(const Rows& rows, const FieldsOf& fields_of) const {
    std::string table = cli::output::TableOf(rows, fields_of).Render(0, false);
    table.pop_back();
    Print(cli::output::JsonRows(rows, fields_of), table);
  }

  struct Verb {
    CLI::App* app;
    std::function<cli::app::ExitCode()> run;
    // Each verb has its own flags. With shared flags, one verb's environment variables would
    // overwrite another verb's options.
    std::unique_ptr<PostgresFlags> flags;
  };

  void AddFlags(CLI::App* app);
  // Of several that were parsed the lowest one; nullptr if none was.
  const Verb* Chosen() const;

  std::vector<Verb> verbs_;
  bool json_ = false;
  std::string author_;
  std::string reason_;
};

std::vector<std::unique_ptr<FleetCommand>> AllFleetCommands();

std::unique_ptr<FleetCommand> NewMigrateCommand();
std::unique_ptr<FleetCommand> NewAgentCommand();
std::unique_ptr<FleetCommand> NewProbeCommand();
std::unique_ptr<FleetCommand> NewStatusCommand();
std::unique_ptr<FleetCommand> NewFleetTuneCommand();
std::unique_ptr<FleetCommand> NewUpgradeCommand();
std::unique_ptr<FleetCommand> NewFleetReportCommand();
std::unique_ptr<FleetCommand> NewExportNodesCommand();
std::unique_ptr<FleetCommand> NewPruneCommand();
std::unique_ptr<FleetCommand> NewFleetReleaseCommand();
std::unique_ptr<FleetCommand> NewFleetPinCommand();
std::unique_ptr<FleetCommand> NewFleetBanCommand();

// Asked by whatever takes long; true once SIGINT or SIGTERM came.
bool FleetStopRequested();
// Until then they end the program at once, as usual.
void CatchFleetSignals();
// From then on SIGHUP ends nothing; true once for each time that it came.
void CatchFleetReload();
bool FleetReloadRequested();

// Pools all that is queued, so that what was delivered until now counts. Waits
// for others who are at it.
absl::Status PoolEverything(db::postgres::Connection& postgres);

}  // namespace convtune::fleet
