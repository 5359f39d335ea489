#include <CLI/CLI.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands/report/report_output.h"
#include "client/cli/output/progress.h"
#include "client/fleet/commands.h"
#include "client/report/report_group.h"
#include "db/fleet/reports.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

constexpr absl::Duration kShowEvery = absl::Milliseconds(100);
constexpr int64_t kMostWanted = 1000;

// Adds the current measurements of all nodes, their counters and their misses, as of one
// moment. Leaves out evidence that is not pooled yet. Calls `progress` with the number of rows
// that are read and the number of all rows.
absl::Status AddFleet(db::postgres::Connection& postgres, report::ReportData* data,
                      const std::function<void(int64_t, int64_t)>& progress) {
  ASSIGN_OR_RETURN(db::postgres::Transaction transaction,
                   db::postgres::Transaction::BeginRead(postgres));
  std::vector<int> places;  // the data's, by their numbers in the database
  ASSIGN_OR_RETURN(const std::vector<db::fleet::NumberedProvenance> provenances,
                   db::fleet::ListProvenances(postgres));
  for (const auto& [id, from] : provenances) {
    places.resize(static_cast<size_t>(id) + 1, -1);
    places.back() =
        data->AddPlace({from.node, from.gpu_uuid, from.driver_version, from.CudaText()});
  }
  ASSIGN_OR_RETURN(const int64_t total, db::fleet::CountReportRows(postgres));
  int64_t done = 0;
  RETURN_IF_ERROR(db::fleet::ReadReportGroups(
      postgres, [&](const db::fleet::ReportGroup& group) -> absl::Status {
        ASSIGN_OR_RETURN(Environment environment, Environment::Parse(group.environment_text));
        environment.gpu_model = group.gpu_model;
        const int in = data->AddEnvironment(group.environment_text, environment);
        const int problem = data->AddProblem(group.problem_text);
        if (in < 0 || problem < 0) return absl::OkStatus();
        ASSIGN_OR_RETURN(const int64_t rows,
                         report::AddGroup(group.rows, in, problem, places, data));
        done += rows;
        progress(done, total);
        return absl::OkStatus();
      }));
  ASSIGN_OR_RETURN(const db::fleet::FleetLookups lookups, db::fleet::SumLookups(postgres));
  if (lookups.nodes > 0) data->AddCounters({lookups.lookups, lookups.hits});
  ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetWanted> wanted,
                   db::fleet::ListFleetWanted(postgres, kMostWanted));
  for (const db::fleet::FleetWanted& each : wanted) {
    ASSIGN_OR_RETURN(const Environment environment, Environment::Parse(each.environment_text));
    data->AddWanted({each.problem_text, environment.Name(), each.misses, each.nodes, ""});
  }
  return absl::OkStatus();
}

class FleetReportCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    output_.Register(*AddVerb(root, "report",
                              "what wins, what it gains, who disagrees, what got slower",
                              cli::app::Rows::kYes));
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const report::ReportOptions options, output_.Options());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    RETURN_IF_ERROR(PoolEverything(*postgres));
    report::ReportData data(output_.Filter());
    {
      cli::output::ProgressBar bar(context.io());
      absl::Time next = absl::Now() + kShowEvery;
      RETURN_IF_ERROR(AddFleet(*postgres, &data, [&](int64_t done, int64_t total) {
        if (absl::Now() < next) return;
        bar.Show(absl::StrFormat("reading  %d of %d rows", done, total));
        next = absl::Now() + kShowEvery;
      }));
    }
    RETURN_IF_ERROR(output_.Write(std::move(data), options, context.format(), context.io()));
    return cli::app::ExitCode::kDone;
  }

 private:
  cli::commands::report::ReportOutput output_;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewFleetReportCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetReportCommand>(flags);
}

}  // namespace convtune::fleet
