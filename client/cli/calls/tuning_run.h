// RunTuning runs tuning jobs and waits for them.
#pragma once

#include <string>
#include <vector>

#include "client/cli/app/context.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli {

struct TuningRun {
  std::vector<v1::TuningJob> jobs;      // as they ended
  std::vector<ProblemRowError> errors;  // rows that the daemon refused
  ExitCode code = ExitCode::kDone;      // kFailed if one failed or was cancelled
  bool cancelled = false;               // by Ctrl-C, or by somebody else
};

// Tunes all `rows`, one job after the other where they do not fit one request,
// with a progress bar on a terminal. `request` gives everything but the
// problems. Ctrl-C cancels the job. Errors and failures are said on io.err.
TuningRun RunTuning(Context& context, const v1::CreateTuningJobRequest& request,
                    const std::vector<ProblemRow>& rows);

// Waits for one job, with a progress bar; `before` and `total` count problems
// of all jobs of a run (0: of this job alone).
absl::StatusOr<v1::TuningJob> WatchJob(Context& context, Client& client, const std::string& name,
                                       int before, int total);

// True once nothing more will happen to it.
bool HasEnded(const v1::TuningJob& job);
// Says how it ended, failures included; what it ends the program with.
ExitCode ReportJob(Context& context, const v1::TuningJob& job);

}  // namespace convtune::cli
