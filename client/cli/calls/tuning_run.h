// RunTuning runs tuning jobs and waits for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "client/cli/app/context.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/clock.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::calls {

struct TuningRun {
  std::vector<v1::TuningJob> jobs;            // as they ended
  std::vector<ProblemRowError> errors;        // rows that the daemon refused
  app::ExitCode code = app::ExitCode::kDone;  // kFailed if one failed or was cancelled
  bool cancelled = false;    // by a signal, by the limits' end, or by somebody else
  bool out_of_time = false;  // cancelled, and the limits' end has passed
};

struct TuningRunLimits {
  SteadyTime end = SteadyTime::InfiniteFuture();  // when the job is cancelled
  bool quiet = false;                             // says nothing of how it ended
};

// Tunes all `rows`, one job after the other where they do not fit one request,
// with a progress bar on a terminal, before work that nobody waits for. `request` gives everything
// but the problems; without an environment it is that of the settings. Ctrl-C and SIGTERM cancel
// the job, as does the limits' end. A daemon that stops meanwhile is waited for, and asked for the
// rest. Errors and failures are said on io.err.
TuningRun RunTuning(app::Context& context, v1::CreateTuningJobRequest request,
                    const std::vector<ProblemRow>& rows, const TuningRunLimits& limits = {});

// Returns the errors of the run's problems without a result, by the problem's text: of
// each job the first failures.
std::map<std::string, std::string> FailureReasons(const TuningRun& run);

// Waits for one job, with a progress bar. UNAVAILABLE if its daemon stops before
// the job's end.
absl::StatusOr<v1::TuningJob> WatchJob(app::Context& context, const std::string& name);

// Says on io.err how the job ended, with its failures. Returns what the program ends with then.
app::ExitCode ReportJob(app::Context& context, const v1::TuningJob& job);

}  // namespace convtune::cli::calls
