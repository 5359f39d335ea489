#include "server/convtuned/once.h"

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/convert/problem_order.h"
#include "server/logging/log.h"

namespace convtune::convtuned {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

// What one environment's look-up came to.
struct Counts {
  int answered = 0;
  int fresh = 0;
  int heuristic = 0;
  int missing = 0;
  int not_persisted = 0;
};

absl::StatusOr<lookup::LookupResponse> LookupAndWait(tuner::Tuner* tuner,
                                                     lookup::LookupRequest request,
                                                     StopSignals* signals) {
  const auto outcome = std::make_shared<std::promise<absl::StatusOr<lookup::LookupResponse>>>();
  auto response = outcome->get_future();
  const uint64_t token = tuner->Lookup(
      std::move(request),
      [outcome](absl::StatusOr<lookup::LookupResponse> r) { outcome->set_value(std::move(r)); });
  bool abandoned = false;
  while (response.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (abandoned) {
      absl::SleepFor(kPollInterval);
    } else if (signals->WaitFor(kPollInterval)) {
      tuner->CancelLookup(token);
      abandoned = true;
    }
  }
  return response.get();
}

Counts Count(const lookup::LookupResponse& response) {
  Counts counts;
  for (const lookup::LookupResult& result : response.results) {
    if (const auto* answer = std::get_if<lookup::Answer>(&result.outcome)) {
      ++counts.answered;
      counts.fresh += answer->fresh ? 1 : 0;
      counts.heuristic += answer->evidence == Evidence::kHeuristic ? 1 : 0;
      counts.not_persisted += answer->persisted || answer->stands_in ? 0 : 1;
    } else {
      ++counts.missing;
      log::Error("no answer for $0: $1", result.key.problem_text,
                 std::get<lookup::Miss>(result.outcome).message);
    }
  }
  return counts;
}

// Every distinct problem, those with the most work first; false if a file or a row of it could not
// be read.
bool ReadProblems(const Flags& flags, std::vector<ConvProblem>* problems) {
  bool ok = true;
  std::vector<ProblemRow> rows;
  for (const std::string& file : flags.files) {
    const absl::StatusOr<ProblemList> list = ReadProblemListFile(file, flags.overrides);
    if (!list.ok()) {
      log::Error("--file: $0", std::string(list.status().message()));
      ok = false;
      continue;
    }
    for (const std::string& notice : list->notices) {
      log::Warn("$0", notice);
    }
    for (const ProblemRowError& error : list->errors) {
      log::Error("$0: $1", error.source, error.message);
      ok = false;
    }
    rows.insert(rows.end(), list->rows.begin(), list->rows.end());
  }
  for (const ProblemRow& row : MostWorkFirst(rows)) {
    problems->push_back(row.problem);
  }
  return ok;
}

std::vector<std::string> EnvironmentNames(tuner::Tuner* tuner) {
  std::vector<std::string> names;
  for (const tuner::EnvironmentInfo& info : tuner->ListEnvironments()) {
    if (info.current) {
      names.push_back(info.environment.Name());
    }
  }
  return names.empty() ? std::vector<std::string>{""} : names;
}

}  // namespace

int RunOnce(tuner::Tuner* tuner, const Flags& flags, StopSignals* signals) {
  std::vector<ConvProblem> problems;
  bool ok = ReadProblems(flags, &problems);
  if (problems.empty()) {
    return 1;
  }
  for (const std::string& environment : EnvironmentNames(tuner)) {
    lookup::LookupRequest request;
    request.environment = environment;
    request.problems = problems;
    request.demand.on_miss = flags.on_miss;
    request.demand.options.time_budget = flags.time_budget;
    request.demand.options.memory_budget_bytes = flags.memory_budget_bytes;
    request.demand.options.wait_idle = flags.wait_idle;
    const absl::StatusOr<lookup::LookupResponse> response =
        LookupAndWait(tuner, std::move(request), signals);
    if (!response.ok()) {
      log::Error("$0", std::string(response.status().message()));
      return 1;
    }
    const Counts counts = Count(*response);
    std::printf("%s: %zu problems, %d answered (%d new, %d by heuristic alone), %d missing%s\n",
                response->environment.Name().c_str(), problems.size(), counts.answered,
                counts.fresh, counts.heuristic, counts.missing,
                counts.not_persisted > 0
                    ? absl::StrCat(", ", counts.not_persisted, " not written to disk").c_str()
                    : "");
    ok = ok && counts.missing == 0 && counts.not_persisted == 0;
  }
  std::fflush(stdout);
  return ok ? 0 : 1;
}

}  // namespace convtune::convtuned
