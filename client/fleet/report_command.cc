#include <CLI/CLI.hpp>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/commands/report.h"
#include "client/cli/output/progress.h"
#include "client/fleet/commands.h"
#include "client/report/report_group.h"
#include "db/fleet/reports.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

constexpr int64_t kMostWanted = 1000;

// Keeps an environment or problem that the filter takes: `id` is its number in the database,
// `number` the report's, which is -1 for what the filter leaves out.
void Select(int64_t id, int number, std::map<int64_t, int>* numbers, std::vector<int64_t>* wanted) {
  if (number < 0) return;
  numbers->emplace(id, number);
  wanted->push_back(id);
}

// Adds the current measurements of all nodes, their counters and their misses, as of one
// moment. Leaves out evidence that is not pooled yet.
absl::Status AddFleet(cli::app::Context& context, db::postgres::Connection& postgres,
                      report::ReportData* data) {
  ASSIGN_OR_RETURN(db::postgres::Transaction transaction,
                   db::postgres::Transaction::BeginRead(postgres));
  std::vector<int> places;  // the data's, by their numbers in the database
  ASSIGN_OR_RETURN(const std::vector<db::fleet::Numbered<Provenance>> provenances,
                   db::fleet::ListProvenances(postgres));
  for (const auto& [id, from] : provenances) {
    places.resize(static_cast<size_t>(id) + 1, -1);
    places.back() =
        data->AddPlace({from.node, from.gpu_uuid, from.driver_version, from.CudaText()});
  }
  db::fleet::ReportSelection wanted;
  std::map<int64_t, int> environments, problems;  // as `places`
  ASSIGN_OR_RETURN(const std::vector<db::fleet::Numbered<Environment>> pooled_environments,
                   db::fleet::ListPooledEnvironments(postgres));
  for (const auto& [id, environment] : pooled_environments) {
    Select(id, data->AddEnvironment(environment.ToText(), environment), &environments,
           &wanted.environments);
  }
  ASSIGN_OR_RETURN(const std::vector<db::fleet::Numbered<std::string>> pooled_problems,
                   db::fleet::ListPooledProblems(postgres));
  for (const auto& [id, text] : pooled_problems) {
    Select(id, data->AddProblem(text), &problems, &wanted.problems);
  }
  if (!environments.empty() && !problems.empty()) {
    // The database need not look up a number in a list of all.
    if (environments.size() == pooled_environments.size()) wanted.environments.clear();
    if (problems.size() == pooled_problems.size()) wanted.problems.clear();
    ASSIGN_OR_RETURN(const int64_t total, db::fleet::CountReportBytes(postgres, wanted));
    int64_t done = 0;
    cli::output::ProgressBar bar(context.io());
    RETURN_IF_ERROR(db::fleet::ReadReportGroups(
        postgres, wanted, [&](int64_t environment, int64_t problem, std::string_view group) {
          done += std::ssize(group);
          bar.ShowBytes("reading", done, total);
          return report::AddGroup(group, environments.at(environment), problems.at(problem), places,
                                  data);
        }));
  }
  ASSIGN_OR_RETURN(const auto lookups_and_hits, db::fleet::SumLookups(postgres));
  data->AddCounters(lookups_and_hits.first, lookups_and_hits.second);
  ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetWanted> missed,
                   db::fleet::ListFleetWanted(postgres, kMostWanted));
  for (const db::fleet::FleetWanted& each : missed) {
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
                              cli::commands::ReportOutput::Columns()));
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    RETURN_IF_ERROR(PoolEverything(context, *postgres));
    report::ReportData data(output_.Filter());
    RETURN_IF_ERROR(AddFleet(context, *postgres, &data));
    RETURN_IF_ERROR(output_.Write(std::move(data), context));
    return cli::app::ExitCode::kDone;
  }

 private:
  cli::commands::ReportOutput output_;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewFleetReportCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetReportCommand>(flags);
}

}  // namespace convtune::fleet
