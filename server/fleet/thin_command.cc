#include <CLI/CLI.hpp>
#include <iostream>

#include "db/fleet_retention.h"
#include "proto/base/status_macros.h"
#include "server/fleet/commands.h"
#include "server/fleet/output.h"

namespace convtune {
namespace {

class ThinCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    app_ = AddVerb(root, "thin", "remove what newer tunings replaced and nothing refers to");
    app_->add_option("--keep", keep_, "what is younger stays")->capture_default_str();
  }
  std::optional<int> RunIfChosen() override {
    if (!app_->parsed()) return std::nullopt;
    return SayResult(Run());
  }

 private:
  absl::Status Run() {
    ASSIGN_OR_RETURN(const absl::Duration keep, ParseFleetTime("keep", keep_));
    ASSIGN_OR_RETURN(const std::unique_ptr<Postgres> postgres, Connect());
    ASSIGN_OR_RETURN(const Thinned thinned, ThinFleet(*postgres, keep));
    if (json_) {
      std::cout << JsonObject()
                       .Int("evidence", thinned.evidence)
                       .Int("tasks", thinned.tasks)
                       .Int("payloads", thinned.payloads)
                       .ToText()
                << '\n';
    } else {
      std::cout << thinned.evidence << " superseded tunings, " << thinned.tasks
                << " ended tasks and " << thinned.payloads << " unused pooled tunings removed\n";
    }
    return absl::OkStatus();
  }

  CLI::App* app_ = nullptr;
  std::string keep_ = "2160h";
};

}  // namespace

std::unique_ptr<FleetCommand> NewThinCommand() { return std::make_unique<ThinCommand>(); }

}  // namespace convtune
