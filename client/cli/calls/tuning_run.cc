#include "client/cli/calls/tuning_run.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/calls/answers.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/progress.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::calls {
namespace {

// True once SIGINT or SIGTERM came; a signal handler may do no more than set it.
std::atomic<bool> signalled{false};

// Makes an event of Ctrl-C, of SIGTERM, and of the end of a time. While it lives, the first SIGINT,
// and the first SIGTERM, calls `on_interrupt` on a thread of its own, instead of ending the
// process; a second one of the same kind ends it. When `end` comes, that thread calls it once for
// that. At most one at a time.
class Interrupt {
 public:
  Interrupt(std::function<void()> on_interrupt, SteadyTime end) {
    signalled = false;
    struct sigaction action {};
    action.sa_handler = [](int) { signalled = true; };
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    sigaction(SIGINT, &action, &previous_int_);
    sigaction(SIGTERM, &action, &previous_term_);
    thread_ = std::jthread(
        [callback = std::move(on_interrupt), end](const std::stop_token& stop) mutable {
          while (!stop.stop_requested()) {
            absl::SleepFor(kSignalPoll);
            const bool ended = SteadyTime::Now() >= end;
            if (ended) end = SteadyTime::InfiniteFuture();
            if (signalled.exchange(false) || ended) callback();
          }
        });
  }
  // Waits for a callback that runs.
  ~Interrupt() {
    sigaction(SIGINT, &previous_int_, nullptr);
    sigaction(SIGTERM, &previous_term_, nullptr);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  static constexpr absl::Duration kSignalPoll = absl::Milliseconds(50);
  struct sigaction previous_int_ {};
  struct sigaction previous_term_ {};
  std::jthread thread_;
};

constexpr absl::Duration kRestartPause = absl::Milliseconds(200);

// True once nothing more will happen to it.
bool HasEnded(const v1::TuningJob& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

// How far one job came.
struct JobCourse {
  bool made = false;
  bool moved = false;  // a problem of it ended
  std::atomic<bool> cancelled{false};
};

absl::StatusOr<v1::TuningJob> Watch(app::Context& context, client::Client& client,
                                    const std::string& name, int before, int total, bool* moved) {
  output::ProgressBar bar(context.io());
  v1::WatchTuningJobRequest watch;
  watch.set_name(name);
  const SteadyTime start = SteadyTime::Now();
  ASSIGN_OR_RETURN(v1::TuningJob job, client.WatchTuningJob(watch, [&](const v1::TuningJob& state) {
    const int ended = state.succeeded_count() + state.failed_count();
    const int whole = std::max(total, before + state.problem_count());
    // Those that had a result already took no time.
    const int worked = ended - state.skipped_count();
    *moved = *moved || worked > 0;
    bar.Show({.done = before + ended,
              .total = whole,
              .left = worked > 0 ? std::make_optional((SteadyTime::Now() - start) / worked *
                                                      (whole - before - ended))
                                 : std::nullopt,
              .current = input::ShortProblem(state.current_problem()),
              .candidates_done = state.current_candidates_done(),
              .candidates_total = state.current_candidates_total()});
  }));
  if (!HasEnded(job)) return absl::UnavailableError("the watch ended before the job did");
  return job;
}

absl::StatusOr<v1::TuningJob> RunJobOnce(app::Context& context, client::Client& client,
                                         const v1::CreateTuningJobRequest& request, int before,
                                         int total, SteadyTime end, JobCourse* course) {
  ASSIGN_OR_RETURN(const v1::TuningJob created, client.Call<v1::TuningJob>(request));
  course->made = true;
  v1::CancelTuningJobRequest cancel;
  cancel.set_name(created.name());
  absl::Status cancel_status;
  absl::StatusOr<v1::TuningJob> ended;
  {
    const Interrupt interrupt(
        [&] {
          if (course->cancelled.exchange(true)) return;
          cancel_status = client.Call<v1::TuningJob>(cancel).status();
        },
        end);
    ended = Watch(context, client, created.name(), before, total, &course->moved);
  }
  if (!cancel_status.ok()) {
    context.SayError(created.name(), " could not be cancelled: ", cancel_status.message());
  }
  return ended;
}

// Runs the job, and runs it again where its daemon stops: a job ends with its daemon, and the next
// daemon skips what is tuned already. Waits for that daemon as long as for any answer.
absl::StatusOr<v1::TuningJob> RunJob(app::Context& context, client::Client& client,
                                     const v1::CreateTuningJobRequest& request, int before,
                                     int total, SteadyTime end) {
  bool waits = false;
  SteadyTime give_up = SteadyTime::InfiniteFuture();
  while (true) {
    JobCourse course;
    auto job = RunJobOnce(context, client, request, before, total, end, &course);
    if (!waits || course.moved) give_up = SteadyTime::Now() + context.settings().client.timeout;
    const bool again = absl::IsUnavailable(job.status()) && (waits || course.made) &&
                       !course.cancelled && SteadyTime::Now() < std::min(give_up, end);
    if (!again) return job;
    if (!std::exchange(waits, true)) {
      context.Say("the daemon stopped before the end; waiting for it to start again");
    }
    client.Pause(kRestartPause);
  }
}

}  // namespace

absl::StatusOr<v1::TuningJob> WatchJob(app::Context& context, const std::string& name) {
  ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
  bool moved = false;
  return Watch(context, *client, name, 0, 0, &moved);
}

app::ExitCode ReportJob(app::Context& context, const v1::TuningJob& job) {
  for (const v1::TuningFailure& failure : job.failures()) {
    context.SayError(failure.problem_text(), ": ", failure.reason());
  }
  const std::string counts = absl::StrCat(
      job.succeeded_count(), " of ", job.problem_count(), " problems have a result",
      job.skipped_count() > 0
          ? absl::StrCat(" (", job.skipped_count(), " had one already; --force tunes anew)")
          : "",
      job.failed_count() > 0 ? absl::StrCat(", ", job.failed_count(), " failed") : "");
  if (job.state() == v1::JOB_STATE_CANCELLED) {
    context.Say(job.name(), " was cancelled: ", counts, ", which are kept");
  } else if (HasEnded(job)) {
    context.Say(job.name(), ": ", counts);
  }
  const bool lost =
      HasEnded(job) && !job.persisted() && job.succeeded_count() > job.skipped_count();
  if (lost) {
    context.SayError(
        "some result is not on disk and is lost with the daemon; "
        "see `convtune doctor`");
  }
  const bool bad = job.state() == v1::JOB_STATE_FAILED || job.state() == v1::JOB_STATE_CANCELLED;
  return bad || lost ? app::ExitCode::kFailed : app::ExitCode::kDone;
}

TuningRun RunTuning(app::Context& context, v1::CreateTuningJobRequest request,
                    const std::vector<ProblemRow>& rows, const TuningRunLimits& limits) {
  request.set_priority(v1::PRIORITY_INTERACTIVE);
  if (request.environment().empty()) request.set_environment(context.settings().environment);
  TuningRun run;
  const auto client = context.Connect();
  if (!client.ok()) {
    run.code = context.Fail(client.status());
    return run;
  }
  int before = 0;
  size_t left = rows.size();
  for (std::vector<const ProblemRow*>& asked : SplitIntoRequests(rows)) {
    const int total = asked.size() == left ? 0 : before + static_cast<int>(left);
    left -= asked.size();
    auto job = RunJob(context, **client, WithProblems(request, asked), before, total, limits.end);
    if (!job.ok() && TakeRefused(context, job.status(), &asked, &run.errors)) {
      run.code = app::Worse(run.code, app::ExitCode::kUsage);
      if (asked.empty()) continue;
      job = RunJob(context, **client, WithProblems(request, asked), before, total, limits.end);
    }
    if (!job.ok()) {
      run.code = app::Worse(run.code, context.Fail(job.status()));
      return run;
    }
    before += job->problem_count();
    run.cancelled = job->state() == v1::JOB_STATE_CANCELLED;
    run.out_of_time = run.cancelled && SteadyTime::Now() >= limits.end;
    const bool ended_well = !run.cancelled && job->state() != v1::JOB_STATE_FAILED;
    run.code = app::Worse(
        run.code, limits.quiet ? (ended_well ? app::ExitCode::kDone : app::ExitCode::kFailed)
                               : ReportJob(context, *job));
    run.jobs.push_back(*std::move(job));
    if (run.cancelled) return run;
  }
  return run;
}

std::map<std::string, std::string> FailureReasons(const TuningRun& run) {
  std::map<std::string, std::string> reasons;
  for (const v1::TuningJob& job : run.jobs) {
    for (const v1::TuningFailure& failure : job.failures()) {
      reasons[failure.problem_text()] = failure.reason();
    }
  }
  return reasons;
}

}  // namespace convtune::cli::calls
