// A JobSnapshot is a job as callers see it, a JobRequest asks for one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "server/jobs/demand.h"

namespace convtune::jobs {

enum class JobState { kQueued = 1, kRunning = 2, kSucceeded = 3, kFailed = 4, kCancelled = 5 };

// A problem that ended without a result.
struct TuningFailure {
  std::string problem_text;
  std::string reason;
  friend bool operator==(const TuningFailure&, const TuningFailure&) = default;
};

struct JobSnapshot {
  std::string name;  // "jobs/N"
  JobState state = JobState::kQueued;
  std::string environment;
  int problem_count = 0;
  int succeeded_count = 0;
  int failed_count = 0;
  int skipped_count = 0;
  std::string current_problem;
  int current_candidates_done = 0;
  int current_candidates_total = 0;
  std::vector<TuningFailure> failures;  // at most 20
  absl::Time create_time;
  std::optional<absl::Time> end_time;
  bool persisted = true;
  bool abandoned = false;    // of look-ups whose callers have gone; see JobTable::Collect
  bool interrupted = false;  // ended by the daemon's end, not by anybody's wish

  bool ended() const {
    return state == JobState::kSucceeded || state == JobState::kFailed ||
           state == JobState::kCancelled;
  }
};

using JobCallback = std::function<void(const JobSnapshot&)>;

struct JobRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  Demand demand{.on_miss = OnMiss::kTune};
  Priority priority = Priority::kBackground;
  std::string request_id;
};

struct JobPage {
  std::vector<JobSnapshot> jobs;
  std::string next_page_token;
};

// The token of the page behind that job: its number.
inline std::string PageTokenOf(const JobSnapshot& last) {
  return last.name.substr(std::string_view("jobs/").size());
}

}  // namespace convtune::jobs
