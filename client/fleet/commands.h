// A FleetCommand is a verb of convtune-fleet. Context, output, exit codes and usage errors are
// those of the command line (client/cli).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/app/program.h"
#include "db/bundle/bundle_signature.h"
#include "db/fleet/evidence.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "db/postgres/connection.h"

namespace convtune::fleet {

// PostgresFlags say where the fleet's database is.
struct PostgresFlags {
  std::string conninfo;
  std::string file;
  std::string schema = "convtune";
  absl::Duration timeout = absl::Seconds(60);

  // Adds --postgres, --postgres-file, --schema and --postgres-timeout, which also
  // come from CONVTUNE_POSTGRES, CONVTUNE_POSTGRES_FILE, CONVTUNE_FLEET_SCHEMA and
  // CONVTUNE_POSTGRES_TIMEOUT. *this must outlive `app`, and not move.
  void Register(CLI::App& app);
  // The connection string is the file's, which nobody but its owner (and, for a
  // reading group, root's files) may read or change; or the flag's, which must
  // not have a password, since a command line can be read by everybody.
  // INVALID_ARGUMENT names the flag and the rule.
  absl::StatusOr<db::postgres::Connection::Options> Resolve() const;
};

class FleetCommand : public cli::app::Command {
 public:
  // `flags` must outlive *this.
  explicit FleetCommand(const PostgresFlags& flags) : flags_(flags) {}

 protected:
  // A connection to a database whose schema this program knows, which FleetStopRequested ends.
  // Errors as PostgresFlags::Resolve and Connection::Connect.
  absl::StatusOr<std::unique_ptr<db::postgres::Connection>> Connect() const;
  const PostgresFlags& flags() const { return flags_; }

 private:
  const PostgresFlags& flags_;
};

// The verbs of convtune-fleet, registered with `root`. `flags` must outlive them.
std::vector<std::unique_ptr<cli::app::Command>> RegisterFleetCommands(const PostgresFlags& flags,
                                                                      CLI::App& root);

using NewFleetVerb = std::unique_ptr<cli::app::Command>(const PostgresFlags& flags);
NewFleetVerb NewAgentCommand, NewProbeCommand, NewMigrateCommand, NewStatusCommand,
    NewFleetTuneCommand, NewUpgradeCommand, NewFleetReportCommand, NewExportNodesCommand,
    NewPruneCommand, NewFleetReleaseCommand, NewFleetPinCommand, NewFleetUnpinCommand,
    NewFleetPinsCommand, NewFleetBanCommand, NewNodeCommand;

// From then on SIGINT and SIGTERM ask for a stop instead of ending the process. Connections that
// wait for a server then have Connection::kStopGrace.
void CatchFleetSignals();
// True once one of them came. Thread-safe.
bool FleetStopRequested();

// Says the error, which names its subject itself.
cli::app::ExitCode FailFleet(cli::app::Context& context, const absl::Status& status);

// Who decides something for the fleet, and why. Must outlive the CLI::App, and not move.
struct DecisionArgs {
  std::string author;
  std::string reason;
  std::string key_file;

  // Adds --author (default: the user's name, or "uid 1000").
  void RegisterAuthor(CLI::App& app);
  // The same and --reason, which is required.
  void Register(CLI::App& app);
  // Adds --sign.
  void RegisterSign(CLI::App& app);
  // With the key of --sign. INVALID_ARGUMENT names the file.
  absl::StatusOr<db::fleet::FleetDecision> Read() const;
};

// Waits until every living node that a decision concerns has heeded it. Must outlive the CLI::App,
// and not move.
struct WaitArgs {
  std::optional<absl::Duration> most;  // nullopt: --wait was not given

  // Adds --wait.
  void Register(CLI::App& app);
  // `read` says how far the decision has come, which is shown, and gives an error where it does not
  // stand any more, which is returned. kUnheeded where that took too long,
  // or where no living node is concerned; kDone at once without --wait, or for no node at all.
  absl::StatusOr<cli::app::ExitCode> Wait(
      cli::app::Context& context,
      const std::function<absl::StatusOr<db::fleet::Heeding>()>& read) const;
};
// Adds the counts and names of a Heeding to a row: a table has "2 of 3", and the names only if
// asked for.
void AddHeeding(const db::fleet::Heeding& heeding, bool with_names, cli::output::Fields* fields);

// Writes a line: the document with --json, else the text.
cli::app::ExitCode PrintOutcome(cli::app::Context& context, const cli::output::Fields& document,
                                const std::string& text);

// An array with --json, else CSV or a table; see cli::output::Fields. Without a row, a table is
// the words `nothing`.
template <typename Rows, typename FieldsOf>
cli::app::ExitCode PrintFleetRows(cli::app::Context& context, const Rows& rows,
                                  const FieldsOf& fields_of, const std::string& nothing) {
  if (context.format() == cli::app::Format::kJson) {
    context.io().out << cli::output::JsonRows(rows, fields_of).text << '\n';
  }
  context.PrintRows(rows, fields_of);
  if (rows.empty() && context.format() == cli::app::Format::kTable) context.Say(nothing);
  return cli::app::ExitCode::kDone;
}

// The nodes that deviate, as JSON and as lines for people.
cli::output::Fields DeviationFields(const db::fleet::NodeDeviation& node);
void SayDeviating(cli::app::Context& context,
                  const std::vector<db::fleet::NodeDeviation>& deviating);

// Pools all that is queued, so that what was delivered until now counts. Waits
// for others who are at it. A login that may not pool (see MayPool) is told how much waits.
absl::Status PoolEverything(cli::app::Context& context, db::postgres::Connection& postgres);

}  // namespace convtune::fleet
