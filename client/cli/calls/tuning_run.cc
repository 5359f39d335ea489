#include "client/cli/calls/tuning_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/app/interrupt.h"
#include "client/cli/calls/batch_get.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

absl::StatusOr<v1::TuningJob> RunJob(Context& context, Client& client,
                                     const v1::CreateTuningJobRequest& request, int before,
                                     int total) {
  ASSIGN_OR_RETURN(const v1::TuningJob created, client.CreateTuningJob(request));
  v1::CancelTuningJobRequest cancel;
  cancel.set_name(created.name());
  absl::Status cancel_status;
  absl::StatusOr<v1::TuningJob> ended;
  {
    ASSIGN_OR_RETURN(const auto interrupt, Interrupt::Create([&] {
                       cancel_status = client.CancelTuningJob(cancel).status();
                     }));
    ended = WatchJob(context, client, created.name(), before, total);
  }
  if (!cancel_status.ok()) {
    context.SayError(absl::StrCat(
        created.name(), " could not be cancelled: ", std::string(cancel_status.message())));
  }
  return ended;
}

v1::CreateTuningJobRequest RequestFor(const v1::CreateTuningJobRequest& base,
                                      const std::vector<const ProblemRow*>& rows) {
  v1::CreateTuningJobRequest request = base;
  for (const ProblemRow* row : rows) request.add_problems()->set_text(row->problem.ToText());
  return request;
}

}  // namespace

bool HasEnded(const v1::TuningJob& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

absl::StatusOr<v1::TuningJob> WatchJob(Context& context, Client& client, const std::string& name,
                                       int before, int total) {
  ProgressBar bar(context.io());
  v1::WatchTuningJobRequest watch;
  watch.set_name(name);
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(v1::TuningJob job, client.WatchTuningJob(watch, [&](const v1::TuningJob& state) {
    const int ended = state.succeeded_count() + state.failed_count();
    const int whole = std::max(total, before + state.problem_count());
    // Those that had a result already took no time.
    const int worked = ended - state.skipped_count();
    bar.Show({.done = before + ended,
              .total = whole,
              .left = worked > 0 ? std::make_optional((absl::Now() - start) / worked *
                                                      (whole - before - ended))
                                 : std::nullopt,
              .current = ShortProblem(state.current_problem()),
              .candidates_done = state.current_candidates_done(),
              .candidates_total = state.current_candidates_total()});
  }));
  if (!HasEnded(job)) return absl::UnavailableError("the watch ended before the job did");
  return job;
}

ExitCode ReportJob(Context& context, const v1::TuningJob& job) {
  for (const std::string& failure : job.failures()) context.SayError(failure);
  const std::string counts = absl::StrCat(
      job.succeeded_count(), " of ", job.problem_count(), " problems have a result",
      job.skipped_count() > 0
          ? absl::StrCat(" (", job.skipped_count(), " had one already; --force tunes anew)")
          : "",
      job.failed_count() > 0 ? absl::StrCat(", ", job.failed_count(), " failed") : "");
  if (job.state() == v1::JOB_STATE_CANCELLED) {
    context.Say(absl::StrCat(job.name(), " was cancelled: ", counts, ", which are kept"));
  } else if (HasEnded(job)) {
    context.Say(absl::StrCat(job.name(), ": ", counts));
  }
  if (HasEnded(job) && !job.persisted() && job.succeeded_count() > job.skipped_count()) {
    context.SayError(
        "some result is not on disk and is lost with the daemon; "
        "see `convtune doctor`");
  }
  const bool bad = job.state() == v1::JOB_STATE_FAILED || job.state() == v1::JOB_STATE_CANCELLED;
  return bad ? ExitCode::kFailed : ExitCode::kDone;
}

TuningRun RunTuning(Context& context, const v1::CreateTuningJobRequest& request,
                    const std::vector<ProblemRow>& rows) {
  TuningRun run;
  const auto client = context.Connect();
  if (!client.ok()) {
    run.code = context.Fail(client.status());
    return run;
  }
  int before = 0;
  for (const auto& [first, last] : SplitIntoRequests(rows)) {
    std::vector<const ProblemRow*> asked;
    for (size_t i = first; i < last; ++i) asked.push_back(&rows[i]);
    const int total = last == rows.size() ? 0 : before + static_cast<int>(rows.size() - first);
    auto job = RunJob(context, **client, RequestFor(request, asked), before, total);
    if (!job.ok() && TakeRefused(context, job.status(), &asked, &run.errors)) {
      run.code = Worse(run.code, ExitCode::kUsage);
      if (asked.empty()) continue;
      job = RunJob(context, **client, RequestFor(request, asked), before, total);
    }
    if (!job.ok()) {
      run.code = Worse(run.code, context.Fail(job.status()));
      return run;
    }
    before += job->problem_count();
    run.code = Worse(run.code, ReportJob(context, *job));
    run.cancelled = job->state() == v1::JOB_STATE_CANCELLED;
    run.jobs.push_back(*std::move(job));
    if (run.cancelled) return run;
  }
  return run;
}

}  // namespace convtune::cli
