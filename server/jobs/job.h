// A JobRequest asks for a job, which callers see as a v1::TuningJob.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "server/jobs/demand.h"

namespace convtune::jobs {

inline bool HasEnded(const v1::TuningJob& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

// `interrupted`: the daemon ended while it ran; nobody cancelled it.
using JobCallback = std::function<void(const v1::TuningJob& job, bool interrupted)>;

struct JobRequest {
  std::string environment;  // name or text; empty where there is one only
  Environment program;      // what the caller has, as far as it is known; see Fits
  std::vector<ConvProblem> problems;
  Demand demand{.on_miss = OnMiss::kTune};
  Priority priority = Priority::kBackground;
  std::string request_id;
};

struct JobPage {
  std::vector<v1::TuningJob> jobs;
  std::string next_page_token;
};

// The token of the page behind that job: its number.
inline std::string PageTokenOf(const v1::TuningJob& last) {
  return last.name().substr(std::string_view("jobs/").size());
}

}  // namespace convtune::jobs
