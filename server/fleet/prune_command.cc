#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"
#include "db/fleet/retention.h"
#include "proto/base/status_macros.h"
#include "server/fleet/commands.h"

namespace convtune::fleet {
namespace {

class PruneCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "prune", "remove what newer tunings replaced and nothing refers to",
                [this] { return Run(); });
    app->add_option("--keep", keep_, "what is younger stays")->capture_default_str();
  }

 private:
  absl::Status Run() {
    ASSIGN_OR_RETURN(const absl::Duration keep, cli::output::ParseTime("--keep", keep_));
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const db::fleet::Thinned thinned, db::fleet::ThinFleet(*postgres, keep));
    Print(cli::output::JsonObject({{"evidence", thinned.evidence},
                                   {"tasks", thinned.tasks},
                                   {"payloads", thinned.payloads}}),
          absl::StrCat(thinned.evidence, " superseded tunings, ", thinned.tasks,
                       " ended tasks and ", thinned.payloads, " unused pooled tunings removed"));
    return absl::OkStatus();
  }

  std::string keep_ = "2160h";
};

}  // namespace

std::unique_ptr<FleetCommand> NewPruneCommand() { return std::make_unique<PruneCommand>(); }

}  // namespace convtune::fleet
