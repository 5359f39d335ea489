#include "server/fleet/report_source.h"

#include <vector>

#include "client/report/report_group.h"
#include "db/fleet/reports.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

constexpr int64_t kMostWanted = 1000;

// Numbers of the database to those of the data; -1: none, or left out.
class Numbers {
 public:
  void Set(int64_t id, int number) {
    if (static_cast<size_t>(id) >= numbers_.size())
      numbers_.resize(static_cast<size_t>(id) + 1, -1);
    numbers_[static_cast<size_t>(id)] = number;
    if (number >= 0) {
      ids_.push_back(id);
    } else {
      complete_ = false;
    }
  }
  int operator[](int64_t id) const {
    const auto place = static_cast<size_t>(id);
    return place < numbers_.size() ? numbers_[place] : -1;
  }
  const std::vector<int>& all() const { return numbers_; }
  // What the database has to be asked for: nothing where that is everything.
  std::vector<int64_t> Wanted() const { return complete_ ? std::vector<int64_t>() : ids_; }
  bool empty() const { return ids_.empty(); }

 private:
  std::vector<int> numbers_;
  std::vector<int64_t> ids_;
  bool complete_ = true;
};

}  // namespace

absl::Status AddFleet(db::postgres::Connection& postgres, report::ReportData* data,
                      const std::function<void(int64_t, int64_t)>& progress) {
  ASSIGN_OR_RETURN(db::postgres::Transaction transaction,
                   db::postgres::Transaction::BeginRead(postgres));
  Numbers environments, problems, places;
  ASSIGN_OR_RETURN(const std::vector<db::fleet::NumberedEnvironment> all,
                   db::fleet::ListFleetEnvironments(postgres));
  for (const db::fleet::NumberedEnvironment& each : all) {
    environments.Set(each.id, data->AddEnvironment(each.text, each.environment));
  }
  ASSIGN_OR_RETURN(const std::vector<db::fleet::NumberedProblem> tuned,
                   db::fleet::ListTunedProblems(postgres));
  for (const db::fleet::NumberedProblem& each : tuned)
    problems.Set(each.id, data->AddProblem(each.text));
  ASSIGN_OR_RETURN(const std::vector<db::fleet::NumberedProvenance> provenances,
                   db::fleet::ListProvenances(postgres));
  for (const db::fleet::NumberedProvenance& each : provenances) {
    const Provenance& from = each.provenance;
    places.Set(each.id,
               data->AddPlace({each.node, from.gpu_uuid, from.driver_version, from.CudaText()}));
  }
  if (!environments.empty() && !problems.empty()) {
    ASSIGN_OR_RETURN(const int64_t total, db::fleet::CountReportRows(postgres));
    int64_t done = 0;
    RETURN_IF_ERROR(db::fleet::ReadReportGroups(
        postgres, environments.Wanted(), problems.Wanted(),
        [&](const db::fleet::ReportGroup& group) {
          const int environment = environments[group.environment_id];
          const int problem = problems[group.problem_id];
          if (environment < 0 || problem < 0) return absl::OkStatus();
          const absl::StatusOr<int64_t> rows =
              report::AddGroup(group.rows, environment, problem, places.all(), data);
          if (!rows.ok()) return rows.status();
          done += *rows;
          if (progress) progress(done, total);
          return absl::OkStatus();
        }));
  }
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

}  // namespace convtune::fleet
