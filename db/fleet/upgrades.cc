#include "db/fleet/upgrades.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "db/fleet/queue.h"
#include "proto/base/status_macros.h"
#include "proto/model/text.h"

namespace convtune::db::fleet {
namespace {

// The newest earlier one of the same hardware that the fleet has tunings of.
absl::StatusOr<std::optional<Environment>> Predecessor(postgres::Connection& postgres,
                                                       const Environment& environment) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT text, gpu_model FROM environments e WHERE gpu_model = $1 "
                                  "AND EXISTS (SELECT 1 FROM evidence m WHERE m.environment_id "
                                  "= e.environment_id AND m.current)",
                                  {environment.gpu_model}));
  std::optional<Environment> newest;
  for (const postgres::Row row : rows) {
    ASSIGN_OR_RETURN(Environment each, Environment::Parse(std::string(row[0])));
    each.gpu_model = row[1];
    Environment same = each;
    same.cudnn = environment.cudnn;
    if (same.ToText() != environment.ToText() || each.cudnn >= environment.cudnn) {
      continue;
    }
    if (!newest.has_value() || newest->cudnn < each.cudnn) newest = each;
  }
  return newest;
}

absl::StatusOr<bool> IsNewestDriver(postgres::Connection& postgres, int64_t environment_id,
                                    const std::string& driver) {
  ASSIGN_OR_RETURN(const postgres::Result rows,
                   postgres.Query("SELECT DISTINCT driver_version FROM node_devices WHERE "
                                  "environment_id = $1 AND driver_version <> ''",
                                  {environment_id}));
  const std::vector<std::string> all = rows.Column<std::string>();
  return std::none_of(all.begin(), all.end(), [&](const std::string& other) {
    return VersionNumbers(driver) < VersionNumbers(other);
  });
}

absl::StatusOr<int64_t> QueueStale(postgres::Connection& postgres, FleetNames& names, int64_t from,
                                   const Environment& environment, const std::string& driver,
                                   const std::string& reason) {
  ASSIGN_OR_RETURN(const int64_t to, names.Environment(environment));
  BatchRequest request;
  request.kind = BatchKind::kVerify;
  request.environment_text = environment.ToText();
  request.author = "convtune-fleet";
  request.reason = reason;
  ASSIGN_OR_RETURN(request.tasks, FindStale(postgres, from, to, driver));
  ASSIGN_OR_RETURN(const postgres::Result recent,
                   postgres.Query("SELECT q.text FROM tasks t JOIN batches b USING (batch_id) JOIN "
                                  "problems q USING (problem_id) WHERE b.kind = 2 AND "
                                  "t.environment_id = $1 AND b.create_time > now() - interval '7 "
                                  "days'",
                                  {to}));
  std::set<std::string> known;
  for (const postgres::Row row : recent) known.insert(row[0]);
  std::erase_if(request.tasks,
                [&](const NewTask& task) { return known.contains(task.problem_text); });
  if (request.tasks.empty()) return 0;
  ASSIGN_OR_RETURN(const int64_t batch, QueueBatch(postgres, names, request));
  return batch == 0 ? 0 : static_cast<int64_t>(request.tasks.size());
}

absl::StatusOr<int64_t> QueueAll(postgres::Connection& postgres, FleetNames& names,
                                 const Environment& environment, const std::string& driver) {
  int64_t queued = 0;
  ASSIGN_OR_RETURN(const std::optional<Environment> before, Predecessor(postgres, environment));
  if (before.has_value()) {
    ASSIGN_OR_RETURN(const int64_t from, names.Environment(*before));
    const auto text = [](const Environment& e) { return e.cudnn.ToText(); };
    ASSIGN_OR_RETURN(const int64_t more,
                     QueueStale(postgres, names, from, environment, "",
                                absl::StrCat("cuDNN ", text(*before), " to ", text(environment))));
    queued += more;
  }
  if (driver.empty()) return queued;
  ASSIGN_OR_RETURN(const int64_t own, names.Environment(environment));
  ASSIGN_OR_RETURN(const bool newest, IsNewestDriver(postgres, own, driver));
  if (!newest) return queued;
  ASSIGN_OR_RETURN(const int64_t more, QueueStale(postgres, names, own, environment, driver,
                                                  absl::StrCat("driver ", driver)));
  return queued + more;
}

}  // namespace

absl::StatusOr<int64_t> QueueVerification(postgres::Connection& postgres, FleetNames& names,
                                          const Environment& environment,
                                          const std::string& driver) {
  const std::string lock =
      "hashtextextended('convtune verify ' || current_schema() || ' ' || $1, 0)";
  const postgres::Params params = {environment.ToText()};
  ASSIGN_OR_RETURN(
      const bool ours,
      postgres.QueryValue<bool>(absl::StrCat("SELECT pg_try_advisory_lock(", lock, ")"), params));
  if (!ours) return 0;
  absl::StatusOr<int64_t> queued = QueueAll(postgres, names, environment, driver);
  // Where the connection is gone, so is the lock.
  RETURN_IF_ERROR(postgres.Execute(absl::StrCat("SELECT pg_advisory_unlock(", lock, ")"), params));
  return queued;
}

}  // namespace convtune::db::fleet
