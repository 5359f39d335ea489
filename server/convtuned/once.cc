#include "server/convtuned/once.h"

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/convert/problem_list.h"
#include "proto/model/tuning/warm_summary.h"
#include "proto/monitoring/log.h"

namespace convtune::convtuned {
namespace {

constexpr std::chrono::milliseconds kPollInterval(50);

absl::StatusOr<lookup::LookupResponse> LookupAndWait(tuner::Tuner* tuner,
                                                     lookup::LookupRequest request,
                                                     StopSignals* signals) {
  const auto outcome = std::make_shared<std::promise<absl::StatusOr<lookup::LookupResponse>>>();
  auto response = outcome->get_future();
  const uint64_t token = tuner->Lookup(
      std::move(request),
      [outcome](absl::StatusOr<lookup::LookupResponse> r) { outcome->set_value(std::move(r)); });
  while (response.wait_for(kPollInterval) != std::future_status::ready) {
    if (signals->stopped()) tuner->EndLookup(token, /*keep_work=*/false);
  }
  return response.get();
}

WarmSummary Summarize(const lookup::LookupResponse& response, int64_t invalid,
                      Evidence publish_evidence) {
  WarmSummary summary;
  summary.environment = response.environment.Name();
  summary.problems = static_cast<int64_t>(response.results.size());
  summary.invalid = invalid;
  summary.publish_evidence = publish_evidence;
  for (const lookup::LookupResult& result : response.results) {
    if (result.row.has_answer()) {
      const v1::Answer& answer = result.row.answer();
      ++(answer.fresh() ? summary.tuned : summary.hits);
      summary.AddUnkept(static_cast<Evidence>(answer.evidence()), answer.pinned(),
                        answer.persisted(), answer.stands_in());
    } else {
      const std::string& reason = result.row.miss().message();
      log::Error("no answer for $0: $1", result.row.problem_text(), reason);
      summary.AddFailure(reason, result.row.problem_text());
    }
  }
  return summary;
}

// Every distinct problem, those with the most work first; returns how many files and rows could
// not be read.
int64_t ReadProblems(const Flags& flags, std::vector<ConvProblem>* problems) {
  int64_t invalid = 0;
  std::vector<ProblemRow> rows;
  for (const std::string& file : flags.files) {
    const absl::StatusOr<ProblemList> list = ReadProblemListFile(file, flags.overrides);
    if (!list.ok()) {
      log::Error("--file: $0", std::string(list.status().message()));
      ++invalid;
      continue;
    }
    for (const std::string& notice : list->notices) {
      log::Warn("$0", notice);
    }
    for (const ProblemRowError& error : list->errors) {
      log::Error("$0: $1", error.source, error.message);
      ++invalid;
    }
    rows.insert(rows.end(), list->rows.begin(), list->rows.end());
  }
  for (const ProblemRow& row : MostWorkFirst(rows)) {
    problems->push_back(row.problem);
  }
  return invalid;
}

// The words of the environments that a device has. Without a device it is the empty word, which
// means the only environment that is known.
std::set<std::string> EnvironmentWords(tuner::Tuner* tuner) {
  std::set<std::string> words;
  for (const v1::Device& device : tuner->ListDevices()) words.insert(device.environment());
  if (words.empty()) words.insert("");
  return words;
}

}  // namespace

int RunOnce(tuner::Tuner* tuner, const Flags& flags, StopSignals* signals) {
  std::vector<ConvProblem> problems;
  const int64_t invalid = ReadProblems(flags, &problems);
  if (problems.empty()) {
    return 1;
  }
  bool warm = true;
  for (const std::string& environment : EnvironmentWords(tuner)) {
    lookup::LookupRequest request;
    request.environment = environment;
    request.problems = problems;
    request.demand.on_miss = flags.on_miss;
    request.demand.options.time_budget = flags.time_budget;
    request.demand.options.memory_budget_bytes = flags.publish.wanted_memory_budget_bytes;
    request.demand.options.wait_idle = flags.publish.wanted_wait_idle;
    const absl::StatusOr<lookup::LookupResponse> response =
        LookupAndWait(tuner, std::move(request), signals);
    if (!response.ok()) {
      log::Error("$0", std::string(response.status().message()));
      return 1;
    }
    WarmSummary summary = Summarize(*response, invalid, flags.publish.floor);
    if (!environment.empty()) summary.environment = environment;
    std::printf("%s\n%s\n", summary.ToText().c_str(), summary.Verdict().c_str());
    warm = warm && summary.warm();
  }
  std::fflush(stdout);
  return warm ? 0 : 1;
}

}  // namespace convtune::convtuned
